"""A release in the formats that other programs read, and the facts they carry."""
