"""Means of arrays of records, and intervals for them (papers 003 and 001)."""
