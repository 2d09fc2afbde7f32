"""The commands; the only room that prints."""
