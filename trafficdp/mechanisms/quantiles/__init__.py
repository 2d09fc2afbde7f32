"""Quantiles over vehicles, for answers to questions."""
