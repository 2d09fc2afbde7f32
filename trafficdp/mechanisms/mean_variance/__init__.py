"""Mean and variance from two sums that pay once."""
