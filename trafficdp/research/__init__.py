"""Algorithms of the papers that no release executes, and comparisons of accountings."""
