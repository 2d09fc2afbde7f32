"""Public layers around a map: read from files, simplified, and the names that they give to hexagons."""
