"""From a position and a time to a hexagon (or zone) and a time slot."""
