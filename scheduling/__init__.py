"""WISHES: which models should run where; decisions about it, and the work of making it so."""
