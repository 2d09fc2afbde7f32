"""Partial pooling: cells lean on the city, as far as their vehicles are few; and the flat map beside it."""
