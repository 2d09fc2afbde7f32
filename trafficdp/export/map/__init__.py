"""A release drawn: the page with the map, outlines, pictures."""
