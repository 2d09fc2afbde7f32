"""Cities that are made: records as a feed would send them, speeds for public counts, and their truth."""
