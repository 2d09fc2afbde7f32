"""Huber's mean for vectors (paper 001)."""
