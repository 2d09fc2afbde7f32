"""Running sums under continual release: trees of noise, accounts, which records count."""
