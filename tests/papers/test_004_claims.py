"""Paper 004: PLAN and IOME land on the errors published with it (arXiv 2306.08745).

A median may exceed the published one by 10 % and by twice the standard error of both medians (of 50 published
runs and of ours). PLAN is also compared as printed: our quantiles have the sensitivity of replacing a user,
where the authors' code uses up to four times the stated rho, and still reach its errors, because variances
are drawn on a logarithmic scale.

The published "PLAN without scaling" is something else: its code sets standard deviations to 10^-30, so that
the range of the clipping length collapses, every vector is clipped to nothing and what is released is the
private median of every coordinate.
"""

import csv
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from trafficdp.noise.source import SimulatedNoise
from trafficdp.research.aumuller_2023.iome import iome_mean
from trafficdp.research.aumuller_2023.plan import plan_binary_mean, plan_mean, private_centre

# errors are computed once for all claims about them
pytestmark = pytest.mark.xdist_group("paper 004")
FILE = Path(__file__).parent / "data" / "plan_published_medians.csv"
with FILE.open() as lines:
    PUBLISHED = {
        (r["experiment"], int(r["d"]), float(r["rho"]), float(r["alpha"]), r["algorithm"]): (
            float(r["median"]),
            float(r["std"]),
        )
        for r in csv.DictReader(line for line in lines if not line.startswith("#"))
    }
SETTINGS = [
    ("gaussianA", 16, 0.5, 0.0, 20),
    ("gaussianC", 128, 0.125, 2.0, 2),
]
ESTIMATES = {"PLAN": plan_mean, "IOME": iome_mean, "unscaled": partial(plan_mean, scaled=False)}
LONG = [
    ("gaussianC", 128, 0.125, 2.0, 3),
    ("gaussianA", 128, 0.125, 0.0, 5),
    ("gaussianA", 256, 1.0, 0.0, 3),
    ("gaussianC", 32, 0.125, 2.0, 9),
    ("gaussianA", 128, 0.5, 0.0, 5),
    ("gaussianA", 256, 0.125, 0.0, 3),
    ("gaussianC", 128, 1.0, 2.0, 3),
    ("gaussianB", 512, 0.0625, 1.0, 1),
    ("gaussianB", 512, 0.25, 0.5, 1),
    ("gaussianB", 512, 0.5, 0.0, 1),
]


def data(experiment, d, alpha, random):
    """One data set, its true mean and the half width of its declared range."""
    n, mean = (4_000, 0.0) if experiment == "gaussianA" else (10_000, 10.0)
    variance = (d / np.arange(1, d + 1)) ** alpha
    reach = 25 * np.sqrt(d) if experiment == "gaussianA" else 50 * d * variance.max() ** 0.25
    return mean + random.standard_normal((n, d)) * np.sqrt(variance), mean, reach


@cache
def errors(algorithm, experiment, d, rho, alpha, runs):
    random, noise, found = np.random.default_rng(1), SimulatedNoise(2), []
    for _ in range(runs):
        x, mean, reach = data(experiment, d, alpha, random)
        found.append(np.linalg.norm(ESTIMATES[algorithm](x, reach, rho, noise) - mean))
    return np.array(found)


def check(algorithm, experiment, d, rho, alpha, runs):
    published, spread = PUBLISHED[experiment, d, rho, alpha, algorithm]
    found = errors(algorithm, experiment, d, rho, alpha, runs)
    allowed = 1.1 * published + 2 * 1.2533 * spread * np.sqrt(1 / 50 + 1 / runs)
    assert np.median(found) <= allowed
    # and not because the data were easier
    assert np.median(found) >= 0.75 * published - 2 * 1.2533 * spread * np.sqrt(1 / 50 + 1 / runs)


@pytest.mark.parametrize("algorithm", ["PLAN", "IOME"])
@pytest.mark.parametrize(
    ("experiment", "d", "rho", "alpha", "runs"),
    [*SETTINGS, *(pytest.param(*each, marks=pytest.mark.prove) for each in LONG)],
)
def test_medians_land_on_the_published_ones(algorithm, experiment, d, rho, alpha, runs):
    check(algorithm, experiment, d, rho, alpha, runs)


class AsPrinted(SimulatedNoise):
    """Medians as in the code: sensitivity 1/2 (E22), and three copies of every value at rho/3 (E23).

    Half the scale and sqrt(3) times the resolution of ranks: 12 times the rho that is stated.
    """

    def choose(self, cost, weight, start, scale, runs=1):
        return super().choose(cost, weight, start, scale / (2 * np.sqrt(3)), runs)


@pytest.mark.parametrize(
    ("experiment", "d", "rho", "alpha"),
    [
        ("gaussianA", 128, 0.5, 0.0),
        pytest.param("gaussianA", 256, 1.0, 0.0, marks=pytest.mark.prove),
        pytest.param("gaussianC", 128, 1.0, 2.0, marks=pytest.mark.prove),
    ],
)
def test_the_published_errors_without_scaling_are_those_of_the_median(experiment, d, rho, alpha):
    published, spread = PUBLISHED[experiment, d, rho, alpha, "PLAN without scaling"]
    random, noise, found = np.random.default_rng(1), AsPrinted(2), []
    for _ in range(5):
        x, mean, reach = data(experiment, d, alpha, random)
        found.append(np.linalg.norm(private_centre(x, reach, 0.25 * rho, noise) - mean))
    assert np.median(found) == pytest.approx(published, rel=0.1, abs=3 * spread / np.sqrt(5))


@pytest.mark.parametrize("setting", [SETTINGS[1], pytest.param(LONG[0], marks=pytest.mark.prove)])
def test_skewed_coordinates_are_where_scaling_pays(setting):
    # alpha = 2, d = 128: the paper's figure 3 (c), about a quarter below IOME at rho = 1/8
    plan = np.median(errors("PLAN", *setting))
    assert plan < 0.9 * np.median(errors("IOME", *setting))
    assert plan < 0.9 * np.median(errors("unscaled", *setting))


def test_scaling_equal_coordinates_costs_little():
    setting = SETTINGS[0]
    plan, plain = (np.median(errors(each, *setting)) for each in ("PLAN", "unscaled"))
    assert plan == pytest.approx(plain, rel=0.12)


def test_skewed_bits_are_estimated_better_than_by_a_rotation():
    # figure 5 (a): d = 256, a quarter of the bits with p = 0.5, the others 0.01; total variation
    random, noise = np.random.default_rng(1), SimulatedNoise(2)
    p, rho = np.where(np.arange(256) < 64, 0.5, 0.01), 0.25
    total = {"plan": [], "iome": []}
    for _ in range(4):
        x = (random.random((4_096, 256)) < p).astype(float)
        total["plan"].append(np.abs(plan_binary_mean(x, rho, noise) - p).sum() / 2)
        total["iome"].append(np.abs(iome_mean(x, 16.0, rho, noise) - p).sum() / 2)
    assert np.median(total["plan"]) < 0.9 * np.median(total["iome"])
