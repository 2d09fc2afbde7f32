"""Papers' algorithms that no release executes, comparisons of accountings, certificates of the best."""
