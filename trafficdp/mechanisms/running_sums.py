"""Running sums of a stream: what every vehicle may lose by all publications, and the numbers of each of them.

With N records, X the noisy sum of x and Y that of x (S - x), in steps (``stream.service``): mean m = X/N and
variance v = m (S - m) - Y/N, clipped to [0, S] and [0, m (S - m)] (Bhatia and Davis).

*Intervals.* X - sum x is a sum of ``terms`` independent discrete Laplace draws, of either sign: it exceeds
h_X with probability at most 1 - level (``noise.tail``). For the variance, h_X and h_Y are both taken at
1 - (1 - level)/2; m (S - m) is monotone on either side of S/2, so over [m - h_X/N, m + h_X/N] its extremes
are at the ends or at S/2; the interval is the range of the difference. Rounding of speeds is added as a bias
(``publish.rounding_bias``). All of it holds at every publication by itself, not at all of them at once.

*Expected error*, worst case over the truth: for the mean that of the clamped sum; m (S - m) moves at most S
times as far as m, so a variance is off by at most S times the mean's error and that of Y/N.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import FloatArray
from trafficdp.mechanisms import publish
from trafficdp.mechanisms.protocol import Statement
from trafficdp.model import ContributionBound, Statistic
from trafficdp.noise.tail import clamped_sum_error, half_width_of_sum
from trafficdp.privacy.estimate import Estimate
from trafficdp.privacy.loss import PureDP
from trafficdp.stream.horizon import Horizon
from trafficdp.stream.service import MEAN, PRODUCT, Allowance, ClosedStep, Stream

POST_PROCESSING = {
    Statistic.MEAN: "means are clamped to the range of the clipped speeds",
    Statistic.VARIANCE: "variances come from two noisy sums and are clamped to 0 .. mean (U - mean), by the "
    "mean of the same sums",
}


@dataclass(frozen=True)
class RunningSums:
    """A calibrated stream: ``statistics`` are MEAN, VARIANCE or both, ``records_per_step`` 0 for no limit."""

    statistics: tuple[Statistic, ...]
    bound: ContributionBound
    horizon: Horizon
    allowance: Allowance
    records_per_step: int

    kind = "running_sums"
    composition = (
        "one epsilon for the whole period, all bins and all publications: every record costs a vehicle the "
        "share of the nodes that it lies in, and a vehicle's records stop counting when its account of nodes "
        "is used up"
    )

    @classmethod
    def calibrate(
        cls,
        statistics: tuple[Statistic, ...],
        bound: ContributionBound,
        horizon: Horizon,
        epsilon: PureDP,
        *,
        records_per_vehicle: int,
        records_per_step: int,
    ) -> RunningSums:
        """Return a calibrated stream over ``horizon`` that costs no vehicle more than ``epsilon``.

        Raises UsageError for numbers out of range, or noise too large to be drawn exactly.
        """
        arity, heights = horizon.tree()
        squares = Statistic.VARIANCE in statistics
        allowance = Allowance(epsilon, bound.upper_steps, arity, heights, records_per_vehicle, squares)
        return cls(statistics, bound, horizon, allowance, records_per_step)

    def to_facts(self) -> dict[str, Any]:
        """Return the calibrated stream as JSON values, without its speed bound.

        ``from_facts`` restores it.
        """
        allowance = self.allowance
        return {
            "kind": self.kind,
            "statistics": [each.value for each in self.statistics],
            "horizon": asdict(self.horizon),
            "epsilon_pico": allowance.epsilon.pico,
            "tree": [allowance.arity, allowance.heights],
            "records_per_vehicle": allowance.records_per_vehicle,
            "records_per_step": self.records_per_step,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], bound: ContributionBound) -> RunningSums:
        """Return the calibrated stream that ``to_facts`` wrote, with the speed ``bound``."""
        statistics = tuple(Statistic(each) for each in facts["statistics"])
        arity, heights = facts["tree"]
        allowance = Allowance(
            PureDP(facts["epsilon_pico"]),
            bound.upper_steps,
            arity,
            heights,
            facts["records_per_vehicle"],
            Statistic.VARIANCE in statistics,
        )
        return cls(statistics, bound, Horizon(**facts["horizon"]), allowance, facts["records_per_step"])

    def stream(
        self, parts: Mapping[str, Mapping[str, Any]] | None = None, enough: int | None = None
    ) -> Stream:
        """Return the stream restored from the stored ``parts``; without them, a new one with no record.

        ``enough`` is the number of vehicles of a bin beyond which they are no longer counted; None: no limit.
        """
        if not parts:
            return Stream(self.horizon, self.allowance, self.records_per_step, enough)
        return Stream.from_state(
            self.horizon, self.allowance, self.records_per_step, parts["opened"], parts["kept"], enough
        )

    def statement(self, statistic: Statistic) -> Statement:
        """Return how ``statistic`` is made noisy, in words, for the manifest.

        Noise scales follow with publications.
        """
        return Statement(
            mechanism="running sums",
            citation="George et al. 2022 (arXiv 2212.09980), continual release at user level; binary "
            "mechanism of Chan, Shi, Song 2011 with signed digits (Andersson, Pagh, Torkamani 2024)",
            sensitivity="every record changes the sum of each node that holds it by at most the range",
            noise_scale=np.zeros(0),
            worst_case_bias=publish.rounding_bias(statistic, self.bound),
            share=None,
            distribution="sum of discrete Laplace draws, one a node, on integers; noise_scale is that of one",
            sampler="OpenDP make_laplace (discrete Laplace on integers)",
            interval_basis="proved tail of a sum of discrete Laplace draws, widened by the worst-case bias",
            post_processing=POST_PROCESSING[statistic],
        )

    def estimates(self, closed: ClosedStep, *, interval_level: float) -> dict[Statistic, Estimate]:
        """Return the estimates of every statistic in all bins at the closed time step ``closed``.

        They follow from its noisy sums and public counts; intervals hold with ``interval_level``.
        """
        makers = {Statistic.MEAN: self._mean, Statistic.VARIANCE: self._variance}
        return {each: makers[each](closed, interval_level) for each in Statistic if each in self.statistics}

    def _mean(self, closed: ClosedStep, level: float) -> Estimate:
        upper, step, scale = float(self.bound.upper), float(self.bound.step), self.allowance.mean_scale
        records = closed.records.astype(np.float64)
        bias = publish.rounding_bias(Statistic.MEAN, self.bound)
        law = publish.NumberLaw(
            scale=scale * step / records,
            error=np.minimum(_sum_error(scale, closed, upper / step) * step + bias, upper),
            bias=np.full(len(records), bias),
            half_width=_half_width(scale, closed, level) * step / records + bias,
        )
        value = closed.sums[:, MEAN] * step / records
        return publish.publish_estimate(Statistic.MEAN, value, law, _noise_columns(scale, closed), self.bound)

    def _variance(self, closed: ClosedStep, level: float) -> Estimate:
        bound, allowance = self.bound, self.allowance
        steps, square = float(bound.upper_steps), float(bound.step) ** 2
        records = closed.records.astype(np.float64)
        bias = publish.rounding_bias(Statistic.VARIANCE, bound)
        both = 1 - (1 - level) / 2
        mean = publish.clamp_to_range(Statistic.MEAN, closed.sums[:, MEAN] / records, steps)
        second = publish.clamp_to_range(Statistic.VARIANCE, closed.sums[:, PRODUCT] / records, steps)
        far = _half_width(allowance.mean_scale, closed, both) / records
        lowest, highest = np.maximum(mean - far, 0.0), np.minimum(mean + far, steps)
        ends = np.stack([publish.largest_variance(end, steps) for end in (lowest, highest)])
        across = (lowest <= steps / 2) & (steps / 2 <= highest)
        most = np.where(across, steps * steps / 4, ends.max(axis=0))
        off = _half_width(allowance.product_scale, closed, both) / records
        value = publish.largest_variance(mean, steps) - second
        value = publish.clamp_to_range(Statistic.VARIANCE, value, steps, mean) * square
        low = (ends.min(axis=0) - second - off) * square - bias
        high = (most - second + off) * square + bias
        error = _sum_error(allowance.product_scale, closed, steps * steps / 4)
        error = (error + steps * _sum_error(allowance.mean_scale, closed, steps)) * square + bias
        error = np.minimum(error, Statistic.VARIANCE.largest(float(bound.upper)))
        # the variance of one record is 0, whatever its speed
        one = closed.records == 1
        value, low, high, error = (np.where(one, 0.0, each) for each in (value, low, high, error))
        scale = np.where(one, 0.0, allowance.product_scale * square / records)
        low, high = publish.clamp_interval(Statistic.VARIANCE, value, low, high, float(bound.upper))
        return Estimate(
            statistic=Statistic.VARIANCE,
            value=value,
            low=low,
            high=high,
            noise_scale=scale,
            expected_error=error,
            status=publish.status_of(error, Statistic.VARIANCE, bound),
            noise=_noise_columns(allowance.product_scale, closed),
        )


def _half_width(scale: int, closed: ClosedStep, level: float) -> FloatArray:
    return half_width_of_sum(np.full(len(closed.records), float(scale)), closed.terms, level)


def _sum_error(scale: int, closed: ClosedStep, max_value: float) -> FloatArray:
    """The expected error of a noisy sum over N, in steps, clamped to [0, max_value]; rounding included."""
    records = closed.records.astype(np.float64)
    noise = clamped_sum_error(scale / records, closed.terms, max_value)
    return np.minimum(noise + closed.terms / records, max_value)


def _noise_columns(scale: int, closed: ClosedStep) -> dict[str, npt.NDArray[np.generic]]:
    """The columns that price a vehicle again: every node's scale, and how many draws the number carries."""
    return {"lattice_scale": np.full(len(closed.records), float(scale)), "noise_terms": closed.terms}
