"""Baseline: Laplace noise at the exact user-level sensitivity of every bin, all bins jointly accounted.

Paper 003 ("Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets"), Baseline:
mean_g + Lap(b_g), value clipped to [0, U]; and the variance by the sensitivity of its companion
(arXiv 2405.06261), reconstructed exactly. We depart from the paper in three ways: the noise is discrete
Laplace on exact integers (no floating-point leakage); scales b_g are free a bin (the paper records
b_g = U m*_g / (N_g eps)); and the loss is each vehicle's own, with mean and variance priced jointly.

Theorem (REPLACE_USER_VALUES). Releasing S_g + Z_g and N_g Q_g - S_g^2 + W_g for all bins with
independent discrete Laplace Z_g, W_g of scales B_g, C_g multiplies the probability of any outcome, when
the values of vehicle l change, by at most exp(sum_g J_g(m[g, l])), J the joint cost of
``bounding.sensitivity``: the ratio of the probabilities of one lattice point is at most
exp(|dS|/B + |dV|/C), and bins hold disjoint samples. Clamping afterwards is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.sensitivity import mean_sensitivity, variance_sensitivity, vehicle_mean_sensitivity
from trafficdp.mechanisms import publish
from trafficdp.mechanisms.known_error import NoiseTerm, clamped_laplace_error
from trafficdp.mechanisms.laplace.lattice import Lattice, loss_per_user, steps_per_unit, to_lattice
from trafficdp.mechanisms.promise import ASSUMPTIONS
from trafficdp.mechanisms.scales import HEADROOM, checked_epsilon
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.noise.tail import half_width
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.contributions import Contributions
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
Noise = Callable[[FloatArray], npt.NDArray[np.int64]]
NAME = "baseline"


@dataclass(frozen=True)
class Baseline:
    """The Laplace mechanism of every statistic at its grid sensitivity: b_g = D*_g / epsilon_g."""

    name = NAME
    citation = (
        "Rameshwar et al., Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets (003), "
        "Baseline; variance by arXiv 2405.06261"
    )
    statistics = tuple(Statistic)
    idealised = False

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism: exact personal losses (Theorem A)."""
        return event(counts, bound, {statistic: lattice_for(statistic, counts, bound, epsilon)})

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See Mechanism: noise at the worst truth, and the rounding of speeds."""
        lattice = lattice_for(statistic, counts, bound, epsilon)
        bias = np.full(counts.bins, publish.rounding_bias(statistic, bound))
        return lattice_error(statistic, counts, bound, lattice, bias)

    def noise_terms(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> tuple[NoiseTerm, ...]:
        """See KnownTerms."""
        lattice = lattice_for(statistic, counts, bound, epsilon)
        bias = np.full(counts.bins, publish.rounding_bias(statistic, bound))
        return (lattice_term(statistic, counts, bound, lattice, bias),)

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """See Mechanism."""
        one: FloatArray = self.estimates(samples, statistic, epsilon, noise, 1)[0]
        return one

    def estimates(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource, runs: int
    ) -> FloatArray:
        """Return ``runs`` independent estimates, shape (runs, G), for experiments."""
        lattice = lattice_for(statistic, samples.counts, samples.bound, epsilon)
        return noisy_moments(statistic, samples.contributions(), lattice, noise, runs)


def lattice_for(
    statistic: Statistic, counts: Counts, bound: ContributionBound, epsilon: FloatArray
) -> Lattice:
    """Return the noise that costs every bin's largest user ``epsilon[g]`` (infinite: no noise)."""
    largest = largest_sensitivity(statistic, counts, bound)
    with np.errstate(over="ignore"):
        scale = largest / checked_epsilon(epsilon, counts) * (1 + HEADROOM)
    lattice = to_lattice(statistic, counts, bound, scale)
    # scales are rounded up, even from 0
    return Lattice(np.where(np.isinf(epsilon), 0.0, lattice.scale), lattice.spacing)


def lattice_error(
    statistic: Statistic, counts: Counts, bound: ContributionBound, lattice: Lattice, bias: FloatArray
) -> FloatArray:
    """Return the expected error of ``noisy_moments`` at the worst truth within ``bias`` of its centre."""
    term = lattice_term(statistic, counts, bound, lattice, bias)
    return clamped_laplace_error(term.scale * term.step, term.bias, statistic.largest(bound.upper))


def lattice_term(
    statistic: Statistic, counts: Counts, bound: ContributionBound, lattice: Lattice, bias: FloatArray
) -> NoiseTerm:
    """Return the error of ``noisy_moments`` around a truth within ``bias`` of its centre."""
    per_unit = steps_per_unit(statistic, counts, bound)
    flooring = np.where(lattice.spacing > 1, lattice.spacing / 2, 0.0) / per_unit
    return NoiseTerm(lattice.scale, lattice.spacing / per_unit, bias + flooring)


def noisy_moments(
    statistic: Statistic, contributions: Contributions, lattice: Lattice, noise: NoiseSource, runs: int
) -> FloatArray:
    """Return ``runs`` noisy values of the statistic, clamped to its range, shape (runs, G)."""
    per_unit = steps_per_unit(statistic, contributions.counts, contributions.bound)
    spacing = lattice.spacing.astype(object)
    floored = exact_integer(statistic, contributions) // spacing
    drawn = noise.discrete_laplace(np.tile(lattice.scale, runs)).reshape(runs, -1)
    centre = np.where(lattice.spacing > 1, lattice.spacing / 2, 0.0)
    raw = ((floored + drawn.astype(object)) * spacing).astype(np.float64) + centre
    return publish.clamped(statistic, raw / per_unit, float(contributions.bound.upper))


def largest_sensitivity(statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return D*_g, the sensitivity of ``statistic`` in every bin (its unit, shape (G,))."""
    upper = float(bound.upper)
    largest, samples = counts.largest_count_per_bin, counts.samples_per_bin
    if statistic is Statistic.MEAN:
        return mean_sensitivity(largest, samples, upper)
    if statistic is Statistic.VARIANCE:
        return variance_sensitivity(largest, samples, upper)
    return vehicle_mean_sensitivity(counts.users_per_bin, upper)


def event(counts: Counts, bound: ContributionBound, lattices: Mapping[Statistic, Lattice]) -> PrivacyEvent:
    """Return what a joint release with this noise promises; values are not needed."""
    return PrivacyEvent(
        mechanism=NAME,
        statistics=tuple(lattices),
        relation=NeighbouringRelation.REPLACE_USER_VALUES,
        unit="vehicle",
        bins=counts.bins,
        sensitivity={s: largest_sensitivity(s, counts, bound) for s in lattices},
        bound=bound,
        assumptions=ASSUMPTIONS,
        loss_per_user=loss_per_user(counts, bound, lattices),
    )


def expected_error(statistic: Statistic, scale: FloatArray, upper: float) -> FloatArray:
    """Return the worst case over the truth of E|clipped estimate - truth|: b (1 - e^(-R/(2b))).

    R is the statistic's range (U, or U^2/4). Saturates at R/2: noise without end is no worse than a
    constant. Discrete Laplace of the same scale has less absolute error (1/sinh(1/B) <= B).
    """
    reach = statistic.largest(upper)
    with np.errstate(divide="ignore"):
        return np.where(scale > 0, -scale * np.expm1(-reach / (2 * scale)), 0.0)


def published_error(
    statistic: Statistic, counts: Counts, bound: ContributionBound, lattice: Lattice
) -> FloatArray:
    """Return the expected error of every bin, rounding and flooring included; 0 without noise."""
    bias = np.full(counts.bins, publish.rounding_bias(statistic, bound))
    return np.where(lattice.scale > 0, lattice_error(statistic, counts, bound, lattice, bias), 0.0)


def release(
    contributions: Contributions,
    lattices: Mapping[Statistic, Lattice],
    noise: Noise,
    *,
    interval_level: float,
    uninformative_above: float,
) -> dict[Statistic, Estimate]:
    """Draw the noise once and return the estimates of all bins (shape (G,)), MEAN before VARIANCE.

    ``noise`` is ``noise.secure.discrete_laplace`` for a release. ``uninformative_above`` is the share of
    the range R = U (or U^2/4) from which an expected error marks the number as UNINFORMATIVE.
    The intervals hold the sample statistic of the clipped speeds, two-sided, with at least
    ``interval_level``; rounding is added as a bias (``publish.rounding_bias``, and s/2 for a
    spacing s).
    """
    estimates: dict[Statistic, Estimate] = {}
    for statistic in sorted(lattices, key=list(Statistic).index):
        estimates[statistic] = _estimate(
            statistic,
            contributions,
            lattices[statistic],
            noise,
            interval_level,
            uninformative_above,
            estimates.get(Statistic.MEAN),
        )
    return estimates


def _estimate(
    statistic: Statistic,
    contributions: Contributions,
    lattice: Lattice,
    noise: Noise,
    level: float,
    uninformative_above: float,
    mean: Estimate | None,
) -> Estimate:
    counts, bound = contributions.counts, contributions.bound
    per_unit = steps_per_unit(statistic, counts, bound)
    spacing = lattice.spacing.astype(object)
    noisy = exact_integer(statistic, contributions) // spacing + noise(lattice.scale).astype(object)
    centre = np.where(lattice.spacing > 1, lattice.spacing / 2, 0.0)
    raw = ((noisy * spacing).astype(np.float64) + centre) / per_unit
    drawn = publish.Drawn(
        value=raw,
        half_width=interval_half_width(statistic, counts, bound, lattice, level),
        noise_scale=lattice.scale * lattice.spacing / per_unit,
        expected_error=published_error(statistic, counts, bound, lattice),
        noise={"lattice_scale": lattice.scale, "lattice_spacing": lattice.spacing},
    )
    return publish.estimate(statistic, drawn, bound, uninformative_above, mean)


def interval_half_width(
    statistic: Statistic, counts: Counts, bound: ContributionBound, lattice: Lattice, level: float
) -> FloatArray:
    """Return the half width of every bin's interval before clamping (statistic's unit, shape (G,)).

    The lattice tail at ``level`` and the worst bias of rounding and flooring; 0 without noise.
    """
    per_unit = steps_per_unit(statistic, counts, bound)
    flooring = np.where(lattice.spacing > 1, lattice.spacing / 2, 0.0) / per_unit
    half = half_width(lattice.scale, level) * lattice.spacing / per_unit
    return np.where(lattice.scale > 0, half + (publish.rounding_bias(statistic, bound) + flooring), 0.0)


def exact_integer(statistic: Statistic, contributions: Contributions) -> npt.NDArray[np.object_]:
    """Return the exact integer of every bin (Python ints, shape (G,)); see ``lattice``."""
    counts = contributions.counts
    if statistic is Statistic.VEHICLE_MEAN:
        rounded = (2 * contributions.total + counts.count) // (2 * counts.count)
        return _sum_per_bin(counts, rounded).astype(object)
    total = _sum_per_bin(counts, contributions.total).astype(object)
    if statistic is Statistic.MEAN:
        return total
    squares = _sum_per_bin(counts, contributions.total_of_squares).astype(object)
    samples = counts.samples_per_bin.astype(object)
    result: npt.NDArray[np.object_] = samples * squares - total * total
    return result


def _sum_per_bin(counts: Counts, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    total = np.zeros(counts.bins, dtype=np.int64)
    np.add.at(total, counts.bin_index, values)
    return total
