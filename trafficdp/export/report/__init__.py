"""A release told: what can be said for certain, and the page that says it."""
