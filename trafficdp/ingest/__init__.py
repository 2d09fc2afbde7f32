"""Reading a city's files, one convention a file: cleaning, pseudonyms, the unit check."""
