"""Machines that exist only in memory, with the agent of real ones."""
