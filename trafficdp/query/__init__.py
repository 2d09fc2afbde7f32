"""Priced questions in SQL: the parser, the plan of what is measured, and the answer."""
