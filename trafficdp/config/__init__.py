"""The configuration file, one table a file."""
