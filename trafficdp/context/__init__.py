"""Public map layers (streets, rivers, places), and the names that they give to hexagons."""
