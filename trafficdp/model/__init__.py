"""The public nouns: grid, bound, counts, assumptions."""
