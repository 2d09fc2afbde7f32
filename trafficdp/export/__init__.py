"""A release as files and as a page to show; cannot reach records."""
