"""Accountings, allocation of noise, refusal, searches for epsilon and map; cannot reach records."""
