"""The only door to randomness."""
