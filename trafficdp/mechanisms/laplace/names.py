"""The accountings by their names; ``accountings`` knows what they do. The configuration needs no more."""

ACCOUNTINGS = ("basic", "grid_count", "exact", "equal", "blocks")
BY_NAME = (*ACCOUNTINGS, "clip_user", "consistent")
"""What may be asked for by name; clip_user is never the best where a map says something, and consistent is
for averages over larger hexagons."""
