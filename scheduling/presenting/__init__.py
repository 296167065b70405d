"""Wishes and what became of them, in words and in cells."""
