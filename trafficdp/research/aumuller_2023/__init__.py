"""PLAN and what paper 004 (arXiv 2306.08745) compares it with, for matrices of vectors."""
