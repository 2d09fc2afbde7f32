"""Loss, events, accountant, ledger arithmetic, release."""
