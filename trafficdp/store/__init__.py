"""The store on disk: records and ledger (vault.duckdb), released maps (released.duckdb), locks, SQL."""
