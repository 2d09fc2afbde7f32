"""Vault, ledger, released database, lock; the SQL."""
