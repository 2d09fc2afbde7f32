"""Numbers of vehicles and of records of every place, where nothing about a vehicle is public.

Three more askings than means have, with a share of their own. A vehicle's vector of 1 in every place that it
visits, and that of its numbers of records there, may be as long as anything. So first its two lengths are
asked for, as logarithms to base 2 over their ranges, cut to 0..1; their means, under N(prior, sd^2), say what
is usual. Then both vectors are asked for, clipped to twice the usual length (``AddRemoveDesign``: what they
cost does not depend on it). All bounds follow from noisy answers.

**Theorem (ADD_OR_REMOVE_USER).** As in ``add_remove_design``: every vector is a function of one vehicle's
records and of answers before. What is guaranteed is about clipped vectors: y +- q sd holds their exact sum
with the level, every place and store; a vehicle longer than the clip counts as less, so low ends hold for the
number itself. Published is the posterior mean under an exponential law of the mean that all answers have:
never below 0, near it where nothing stands out of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.measurement.laws import GRAINS
from trafficdp.measurement.sets import Measure
from trafficdp.mechanisms.pooling.add_remove_design import AddRemoveDesign
from trafficdp.sensitive import VectorEntries

COUNTED = ("vehicles", "records")
RANGES, PRIORS, PRIOR_SDS = (8.0, 20.0), (2.5, 7.0), (1.0, 2.0)
"""Of both lengths, as logarithms to base 2: the largest, what is usual, how sure that is. Round numbers."""


@dataclass(frozen=True)
class CountAnswers:
    """What was drawn, in grains: ``lengths`` (2,), ``counted`` (2, H); ``clip_bounds`` (2,) that they set."""

    lengths: IntArray
    clip_bounds: FloatArray
    counted: IntArray


def log_lengths(vectors: FloatArray) -> FloatArray:
    """Return base-2 logarithms of vehicles' vector lengths over their ranges, cut to 0..1, shape (2, n).

    ``vectors`` (2, n) holds the length of each vehicle's vector of visits and of its vector of records.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log2(vectors) / np.array(RANGES)[:, None], 0.0, 1.0))


def count_clips(design: AddRemoveDesign, lengths: IntArray, vehicles: float) -> FloatArray:
    """Return the lengths to which vehicles' vectors of visits and of records are clipped, shape (2,).

    Twice the usual length, estimated from the noisy ``lengths`` (2,) and the noisy number of ``vehicles``.
    """
    ranges, prior, sd = np.array(RANGES), np.array(PRIORS), np.array(PRIOR_SDS)
    noise = design.sd(design.counts_index, design.lengths_bound) * ranges / vehicles
    found = lengths / GRAINS * design.lengths_bound * ranges / vehicles
    usual = prior + np.clip(found - prior, -ranges, ranges) * sd**2 / (sd**2 + noise**2)
    return np.asarray(2.0 ** np.clip(usual + 1, 0.0, ranges))


def expected_count_errors(design: AddRemoveDesign) -> dict[str, float]:
    """Return the expected absolute noise in a place's numbers of "vehicles" and of "records", before release.

    It is for clips of a usual fleet; nothing measured is read.
    """
    clip_bounds = 2.0 ** (np.array(PRIORS) + 1)
    both = (design.sd(design.counts_index + each, own) for each, own in enumerate(clip_bounds.tolist(), 1))
    return {name: float(np.sqrt(2 / np.pi)) * sd for name, sd in zip(COUNTED, both, strict=True)}


def estimate_counts(design: AddRemoveDesign, answers: CountAnswers, level: float) -> dict[str, FloatArray]:
    """Return the numbers of "vehicles" and of "records" of every place, (H,) each, from noisy answers alone.

    Values are posterior means under an exponential prior; intervals, whose ends are named "vehicles_low" and
    "vehicles_high", hold the exact clipped sum with ``level``.
    """
    found: dict[str, FloatArray] = {}
    tail = -np.log1p(-level) / np.sqrt(2) if design.pure else float(ndtri((1 + level) / 2))
    for number, name in enumerate(COUNTED):
        clip_bound = float(answers.clip_bounds[number])
        sd = design.sd(design.counts_index + 1 + number, clip_bound)
        answer = answers.counted[number] * (clip_bound / GRAINS)
        mean = max(float(answer.mean()), sd / np.sqrt(len(answer)))
        z = (answer - sd**2 / mean) / sd
        near, far = np.maximum(z, -30.0), np.minimum(z, -30.0)
        # the mean of a normal above 0; far below 0 by its series, where the difference is all rounding
        above = near + np.exp(-near * near / 2) / np.sqrt(2 * np.pi) / ndtr(near)
        value = sd * np.where(z < -30.0, -1 / far + 2 / far**3, above)
        low, high = np.maximum(answer - tail * sd, 0.0), np.maximum(answer + tail * sd, 0.0)
        found |= {name: value, f"{name}_low": np.minimum(low, value), f"{name}_high": np.maximum(high, value)}
    return found


def measure_counts(
    design: AddRemoveDesign, vectors: tuple[VectorEntries, VectorEntries], vehicles: float, measure: Measure
) -> CountAnswers:
    """Measure both counts of every place with noise, from private ``vectors``: 1 a visit, and records a
    visit.

    First the vectors' usual lengths, then both vectors clipped to twice those. ``vehicles`` is a noisy
    number.
    """
    own, which = np.unique(vectors[0].user, return_inverse=True)
    size = [np.bincount(which, each.value**design.norm, len(own)) ** (1 / design.norm) for each in vectors]
    lengths = measure.measure(
        design.step(design.counts_index, 2, design.lengths_bound),
        VectorEntries(np.tile(own, 2), np.repeat([0, 1], len(own)), log_lengths(np.stack(size)).ravel()),
    )
    clip_bounds = count_clips(design, lengths, vehicles)
    found = [
        measure.measure(
            design.step(design.counts_index + 1 + each, design.size, float(clip_bounds[each])), vector
        )
        for each, vector in enumerate(vectors)
    ]
    return CountAnswers(lengths, clip_bounds, np.stack(found))
