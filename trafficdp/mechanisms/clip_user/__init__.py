"""Clip-User: vehicles leave the bins in which they cost most (paper 003)."""
