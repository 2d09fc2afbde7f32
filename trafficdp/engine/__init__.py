"""Records to sums per vehicle and hexagon, sorted in buckets, in exact integers."""
