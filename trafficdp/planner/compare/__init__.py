"""Accountings held against each other on the same counts, and the searches behind them."""
