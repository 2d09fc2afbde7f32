"""All mechanisms, in one tuple: what ``auto`` chooses from, and what the contract suite and audits run."""

from __future__ import annotations

from trafficdp.errors import UsageError
from trafficdp.mechanisms.akmv import AKMV
from trafficdp.mechanisms.array_averaging import ArrayAveraging
from trafficdp.mechanisms.array_means import Grouping
from trafficdp.mechanisms.baseline import Baseline
from trafficdp.mechanisms.direct_clipping import DirectClipping
from trafficdp.mechanisms.huber import Huber
from trafficdp.mechanisms.levy import Levy
from trafficdp.mechanisms.linf_block import LinfBlock
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.mechanisms.pooled import Pooled
from trafficdp.mechanisms.quantile import Quantile, QuantileRule
from trafficdp.mechanisms.two_moments import KnownTwoMoments, TwoMoments
from trafficdp.mechanisms.two_stage import TwoStage
from trafficdp.mechanisms.worst_case_clipping import WorstCaseClipping

MECHANISMS: tuple[Mechanism, ...] = (
    Baseline(),
    Pooled(),
    KnownTwoMoments(ArrayAveraging(Grouping.BEST_FIT)),
    KnownTwoMoments(ArrayAveraging(Grouping.WRAP_AROUND)),
    KnownTwoMoments(Levy(Grouping.BEST_FIT)),
    KnownTwoMoments(Levy(Grouping.WRAP_AROUND)),
    TwoMoments(Quantile(QuantileRule.FIXED, Grouping.BEST_FIT)),
    TwoMoments(Quantile(QuantileRule.FIXED, Grouping.WRAP_AROUND)),
    TwoMoments(Quantile(QuantileRule.OPTIMIZED, Grouping.BEST_FIT)),
    TwoMoments(Quantile(QuantileRule.OPTIMIZED, Grouping.WRAP_AROUND)),
    Huber(),
    KnownTwoMoments(TwoStage()),
    WorstCaseClipping(),
    WorstCaseClipping(least_exact_error=True),
    DirectClipping(),
    AKMV(),
    LinfBlock(),
)
"""With their default settings; names are unique."""


def mechanism_named(name: str) -> Mechanism:
    """Return the mechanism of this name; raise UsageError when there is none."""
    for mechanism in MECHANISMS:
        if mechanism.name == name:
            return mechanism
    raise UsageError(
        "unknown mechanism", got=name, expected="one of " + ", ".join(m.name for m in MECHANISMS)
    )
