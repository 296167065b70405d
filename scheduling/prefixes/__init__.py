"""Which replica has seen the beginning of a prompt before. Pure: no rows, no clock, no network."""
