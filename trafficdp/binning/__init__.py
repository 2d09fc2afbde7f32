"""Hexagons and time slots."""
