"""Laplace noise on integers: the baseline, its lattice, the accountings of papers."""
