"""Huber's robust mean with noise scaled by its smooth sensitivity (paper 001)."""
