"""Simulated cities: their records, their true means, and simulated speeds for public counts."""
