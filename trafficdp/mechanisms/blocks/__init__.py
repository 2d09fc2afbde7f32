"""Block noise: statistics that the same vehicles share pay once."""
