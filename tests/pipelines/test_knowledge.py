"""Each map starts from the one before: errors fall and stay low, and no map grows too sure of itself.

Every map is of other vehicles of one city: as many as there are, drawn with replacement. The sample city's
hexagons are more alike than those that posteriors were tuned on, so that its errors are stated too large with
and without an earlier map: what is tested there is what the chain changes.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from knowledge import EPSILONS, LONG, LONG_DAYS, resampled_chain
from presence import austin, read

pytestmark = [pytest.mark.store, pytest.mark.slow]
SAMPLE = Path(__file__).parents[2] / "data" / "sample"


def told(found):
    """Errors alone and in the chain, what they are said to be, over the true ones."""
    (alone, alone_said), (error, said) = found.mean(axis=0)
    return alone, error, alone_said / alone, said / error


@pytest.mark.parametrize(("maps", "chains"), [(6, 4), pytest.param(LONG, 6, marks=pytest.mark.prove)])
def test_a_chain_stays_near_the_truth_and_as_sure_as_single_maps(maps, chains):
    files = sorted(SAMPLE.glob("*.csv.gz"))
    city = read("sample", lambda _: SAMPLE / "trafficdp.toml", files, 8).own
    found = np.mean([resampled_chain(city, 1, maps, seed) for seed in range(chains)], axis=0)
    alone, error, said_alone, said = told(found)
    assert error < 0.9 * alone
    assert 0.95 < said / said_alone < 1.2
    _, last, _, said_last = told(found[-maps // 3 :])
    assert last < 1.15 * error
    assert 0.8 < said_last / said < 1.2


@pytest.mark.skipif("TRAFFICDP_REAL_DATA" not in os.environ, reason="TRAFFICDP_REAL_DATA is not set")
@pytest.mark.parametrize("maps", [10, pytest.param(LONG, marks=pytest.mark.prove)])
def test_in_austin_errors_are_said_within_a_fifth_of_the_truth_all_along(maps):
    """On average over three sets of days and both epsilons; and on none does the chain say them worse."""
    cities = [austin(days[0], days, 7).own for days in LONG_DAYS]
    found = [resampled_chain(city, epsilon, maps, 0) for city in cities for epsilon in EPSILONS]
    assert 0.8 < np.mean([told(each)[3] for each in found]) < 1.2
    assert 0.8 < np.mean([told(each[-10:])[3] for each in found]) < 1.2
    for each in found:
        alone, error, said_alone, said = told(each)
        assert error < alone
        assert 0.8 < said / said_alone < 1.2
