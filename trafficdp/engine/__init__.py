"""Sums of speeds per vehicle, hexagon and slot, computed from records by DuckDB or Spark."""
