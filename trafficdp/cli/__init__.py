"""The only room that prints: one command a file, and the words they share."""
