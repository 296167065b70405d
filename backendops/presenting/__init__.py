"""How orders look to people: lines, words and the strip; no clock, no writes."""
