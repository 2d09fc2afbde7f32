"""Loss and how it adds up, events, ledger arithmetic, release."""
