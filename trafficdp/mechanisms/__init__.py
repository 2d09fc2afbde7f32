"""Mechanisms, one published method a file."""
