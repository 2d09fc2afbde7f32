"""The nouns that hold people's values."""
