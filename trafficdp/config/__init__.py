"""The configuration file trafficdp.toml: one table a file."""
