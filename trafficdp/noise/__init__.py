"""Exact samplers of noise, and the only source of randomness."""
