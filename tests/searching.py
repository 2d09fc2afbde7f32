"""How many examples a test of any input tries, in `make test` and in the long proofs."""

import hypothesis

EXAMPLES = {"trafficdp": 50, "trafficdp-long": 1_000}
"""Of each profile, for a test that names no number."""


def examples(named):
    """Return how many examples are tried of ``named``: half as many, and ten times as many in long proofs."""
    return max(1, named * hypothesis.settings.default.max_examples // 100)
