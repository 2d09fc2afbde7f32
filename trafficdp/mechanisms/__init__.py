"""What a mechanism promises, which there are, how one is frozen and read back; one folder a family."""
