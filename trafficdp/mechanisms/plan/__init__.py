"""PLAN and what it is compared with (paper 004)."""
