"""Continual mean estimation (paper 002) and what beats it."""
