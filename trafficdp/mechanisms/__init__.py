"""The mechanisms, their common interface and their registry; one folder a family."""
