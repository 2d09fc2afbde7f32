"""Mechanisms tried in cities that are simulated from public counts."""
