"""The one entry point for maps, answers and streams: plan, charge, draw, publish, recover, verify."""
