"""Records to sums per vehicle and hexagon, by DuckDB, in exact integers."""
