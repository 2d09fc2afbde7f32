"""One foreign convention a file: its bytes to records."""
