"""Block noise whose hexagons add up to their parents."""
