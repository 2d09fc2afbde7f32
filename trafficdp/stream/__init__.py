"""Running sums under continual release: trees of noisy nodes, and the account of every vehicle."""
