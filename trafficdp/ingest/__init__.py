"""Readers of a city's files, cleaning, pseudonyms and the unit check."""
