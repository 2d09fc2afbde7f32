"""Exact sensitivities: how far one vehicle can move a statistic."""
