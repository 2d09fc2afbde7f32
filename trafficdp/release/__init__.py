"""The one entry point of a map or a stream: planned, charged, drawn, published, recovered, checked against the vault."""
