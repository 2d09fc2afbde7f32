"""IOME over all bins at once: every vehicle's vector rotated, clipped to one length, noise of one size.

Huang, Liang, Yi, "Instance-optimal Mean Estimation Under Differential Privacy", NeurIPS 2021, which paper 004
compares PLAN with; ``iome_vectors`` has its steps. The vectors of sparse visits are as in ``plan``, centred
in public: of the L vehicles that were anywhere, vehicle l has

    z[l, g] = (L / N_g) (S[g, l] - m[g, l] U/2)  where it was,  0 where it was not,

and (1/L) sum_l z[l] + U/2 is exactly the vector of bin means. No vector is longer than half of
B_l = |L m[g, l] U / N_g|_2, so that u = max_l B_l / 2 is a public range of lengths, in which C is searched.
After the rotation there is no telling who was where: the private centre is subtracted from all.

Theorem (REPLACE_USER_VALUES). rho-zCDP: a vehicle's values decide its own row alone, so that one rank changes
in every coordinate and one among the lengths, and clipped to C the sum changes by 2 C at most. A vehicle that
was somewhere pays rho in full, any other nothing.

The rotation needs L rows of d = 2^ceil(log2 G) numbers: cities of more than LARGEST_CELLS are refused, when
they are priced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.plan.iome_vectors import mean_in_place, padded_columns
from trafficdp.mechanisms.plan.plan import largest_lengths, masked_vectors
from trafficdp.mechanisms.promise import require_statistic
from trafficdp.mechanisms.zcdp_promise import zcdp_promise
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import ZCDP

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
LARGEST_CELLS = 1 << 26
"""L d: 0.5 GB of numbers."""


@dataclass(frozen=True)
class IOME:
    """IOME for bin means."""

    name = "iome"
    citation = (
        "Huang, Liang, Yi: Instance-optimal Mean Estimation Under Differential Privacy, NeurIPS 2021, "
        "as run in arXiv 2306.08745"
    )
    statistics = (Statistic.MEAN,)
    idealised = False

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> PrivacyEvent:
        """See ZCDPMechanism: rho for every vehicle that was anywhere.

        Raises UsageError for a city of more than LARGEST_CELLS.
        """
        require_statistic(self.name, statistic, self.statistics)
        _shape(counts)
        loss = np.where(counts.bins_per_user > 0, ZCDP.of(rho).pico, 0)
        return zcdp_promise(self.name, statistic, counts, bound, loss.astype(np.int64))

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> FloatArray:
        """See ZCDPMechanism. No formula: what clipping costs depends on values; the whole range."""
        require_statistic(self.name, statistic, self.statistics)
        return np.full(counts.bins, float(bound.upper) if np.isfinite(rho) else 0.0)

    def estimate(self, samples: Samples, statistic: Statistic, rho: float, noise: NoiseSource) -> FloatArray:
        """See ZCDPMechanism. An infinite ``rho`` clips nothing and adds no noise."""
        require_statistic(self.name, statistic, self.statistics)
        counts, upper = samples.counts, float(samples.bound.upper)
        total: FloatArray = samples.contributions().total.astype(np.float64) * float(samples.bound.step)
        if rho == np.inf or counts.bins == 0:
            sums = np.bincount(counts.bin_index, total, counts.bins)
            return np.asarray(sums / counts.samples_per_bin, dtype=np.float64)
        # a little less, so that the parts never add up to more
        rho = float(ZCDP.of(rho).rho) * (1 - 2.0**-40)
        rows, columns = _shape(counts)
        middle = np.full(counts.bins, upper / 2)
        own_row = np.cumsum(counts.bins_per_user > 0) - 1
        # both count all vehicles for L, which is no matter to the mean
        vectors = np.zeros((rows, columns))
        vectors[own_row[counts.user_index], counts.bin_index] = masked_vectors(counts, total, middle)
        vectors *= rows / counts.users
        reach = float(largest_lengths(counts, np.ones(counts.bins), upper).max())
        reach *= rows / counts.users / 2
        mean = middle + mean_in_place(vectors, reach, rho, noise)[: counts.bins]
        return np.asarray(np.clip(mean, 0.0, upper), dtype=np.float64)


def _shape(counts: Counts) -> tuple[int, int]:
    """Vehicles that were anywhere, and coordinates after padding; UsageError when they are too many."""
    rows, columns = int((counts.bins_per_user > 0).sum()), padded_columns(counts.bins)
    if rows * columns > LARGEST_CELLS:
        raise UsageError(
            "the city is too large for iome, which rotates every vehicle's vector of all bins",
            got=f"{rows} vehicles, {counts.bins} bins",
            expected=f"at most {LARGEST_CELLS:,} for their product, bins rounded up to a power of 2",
            todo="name plan_public_scaling, choose a coarser resolution, a longer slot or a larger "
            "min_vehicles",
        )
    return rows, columns
