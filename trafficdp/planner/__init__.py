"""Accountings, allocation of noise, refusal, searches for epsilon and map; cannot name records."""
