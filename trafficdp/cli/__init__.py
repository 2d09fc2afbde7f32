"""The command line: one command a file. The only package that prints."""
