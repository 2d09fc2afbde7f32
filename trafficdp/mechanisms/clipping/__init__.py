"""Optimal clipping of contributions (paper 000) and what it is compared with."""
