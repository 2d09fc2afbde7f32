"""Privacy loss and how it adds up, privacy events, budgets, the ledger, and the type Release."""
