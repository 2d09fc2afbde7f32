"""Mechanisms for one statistic at a time: those of the papers, releasable by name."""
