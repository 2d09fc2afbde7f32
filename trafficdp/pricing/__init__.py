"""The second opinion on a charge, from steps alone."""
