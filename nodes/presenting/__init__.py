"""How nodes look to people: view models and words, shared by every page; no clock, no writes."""
