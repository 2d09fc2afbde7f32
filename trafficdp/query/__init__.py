"""Priced questions in SQL: reading, normal form, answer; what cannot be read is told what would do."""
