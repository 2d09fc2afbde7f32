"""The second opinion on a charge, from counts and frozen facts alone."""
