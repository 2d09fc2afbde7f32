"""A release as files, as a map and as a report to show; cannot name records."""
