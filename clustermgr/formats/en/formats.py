"""Dates that sort, and mean the same everywhere."""

DATETIME_FORMAT = "Y-m-d H:i:s"
