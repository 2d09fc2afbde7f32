"""Priced questions in SQL: what records are asked is read narrowly, DuckDB arranges the answer."""
