"""Exact sensitivities: what one vehicle can move."""
