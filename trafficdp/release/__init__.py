"""The one door of a map: planned, charged, drawn, published, recovered, checked against the vault."""
