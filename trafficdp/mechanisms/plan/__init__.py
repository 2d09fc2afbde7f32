"""PLAN (paper 004)."""
