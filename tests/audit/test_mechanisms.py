"""Claimed epsilons against what draws prove; mistakes made on purpose must be caught.

The confidence is 1 - 10^-9 throughout, so a failure is not chance. Draws are seeded: NumPy's laws equal
those of a release (tests/distribution, tests/unit/noise).
"""

import numpy as np
import pytest

from trafficdp.audit.lower_bound import audit_draws, audit_mechanism
from trafficdp.audit.wrong import mistakes
from trafficdp.mechanisms.registry import MECHANISMS
from trafficdp.noise.source import SimulatedNoise

CERTAIN = 1 - 1e-9
CASES = [(m, s) for m in MECHANISMS if not m.idealised for s in m.statistics]
KEEPS_SHARP = {"baseline", "pooled", "array_averaging_best_fit", "array_averaging_wrap_around"}


@pytest.mark.parametrize(("mechanism", "statistic"), CASES, ids=lambda case: getattr(case, "name", str(case)))
def test_no_draws_refute_the_claim(mechanism, statistic, bound_of):
    found = audit_mechanism(
        mechanism, statistic, 1.0, bound_of(64), SimulatedNoise(11), draws=10_000, confidence=CERTAIN
    )
    assert found.epsilon <= 1.0, found
    if mechanism.name in KEEPS_SHARP:
        # the neighbours are adversarial enough to come close
        assert found.epsilon > 0.6, found


@pytest.mark.parametrize("index", range(4))
def test_mistakes_are_caught_and_their_right_twins_are_not(index, bound_of):
    mistake = mistakes(bound_of(64))[index]

    def audit(draws):
        return audit_draws(draws, mistake.pairs, SimulatedNoise(12), draws=100_000, confidence=CERTAIN)

    caught = audit(mistake.wrong)
    assert caught.epsilon > mistake.claim, caught
    if mistake.right is not None:
        kept = audit_draws(
            mistake.right, mistake.pairs, SimulatedNoise(12), draws=100_000, confidence=CERTAIN
        )
        assert kept.epsilon <= mistake.claim, kept


def test_every_mistake_is_among_those_tested(bound_of):
    assert len(mistakes(bound_of(64))) == 4


def test_the_result_says_on_what_it_rests(bound_of):
    mistake = mistakes(bound_of(64))[0]
    found = audit_draws(mistake.wrong, mistake.pairs, SimulatedNoise(13), draws=2_000, confidence=0.99)
    assert found.draws == 2_000
    assert found.confidence == 0.99
    assert found.label in {pair.label for pair in mistake.pairs}
    assert np.isfinite(found.epsilon)
