"""The one entry point of a map or a stream: plan, charge, draw, publish, recover, check against the vault."""
