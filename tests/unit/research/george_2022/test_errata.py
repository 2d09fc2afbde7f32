"""E18: with L = floor(log2 m) there are L + 1 counters; dividing their budget by L overspends."""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.research.george_2022.arrivals import WithholdRelease, paper_plan


@pytest.mark.parametrize("samples", [2, 3, 16, 256])
def test_the_literal_split_spends_more_than_it_claims(samples):
    last = samples.bit_length() - 1
    literal = paper_plan(100, samples, 10, 1.0, 0.05, counter_levels=last)
    overspent = Fraction(1, 2) + Fraction(last + 1, 2 * last)
    assert float(literal.loss().exact) == pytest.approx(float(overspent), rel=1e-9)
    assert literal.loss().exact > 1
    assert paper_plan(100, samples, 10, 1.0, 0.05).loss().exact <= 1


def test_a_vehicle_with_all_its_samples_has_an_element_on_every_one_of_the_levels():
    for samples in (2, 3, 16, 256):
        found = WithholdRelease(1).append(np.zeros(samples, dtype=int), np.ones(samples, dtype=int))
        assert found.level.tolist() == list(range(samples.bit_length()))
