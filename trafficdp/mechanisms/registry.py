"""All mechanisms: one tuple a kind of loss, and ``MECHANISMS``, all of them together.

Kinds never mix: pure epsilon, rho and (epsilon, delta) add up only by a named conversion
(``privacy.conversion``). ``auto`` chooses among PURE_MECHANISMS; a store that counts in rho knows
ZCDP_MECHANISMS alone; no budget counts in (epsilon, delta). Contract suite and audits run MECHANISMS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from trafficdp._validate import did_you_mean
from trafficdp.errors import UsageError
from trafficdp.mechanisms.approx_mechanism import ApproxMechanism
from trafficdp.mechanisms.arrays.array_averaging import ArrayAveraging
from trafficdp.mechanisms.arrays.array_means import Grouping
from trafficdp.mechanisms.arrays.levy import Levy
from trafficdp.mechanisms.arrays.pooled import Pooled
from trafficdp.mechanisms.arrays.quantile import Quantile, QuantileRule
from trafficdp.mechanisms.arrays.two_stage import TwoStage
from trafficdp.mechanisms.clipping.akmv import AKMV
from trafficdp.mechanisms.clipping.direct_clipping import DirectClipping
from trafficdp.mechanisms.clipping.worst_case_clipping import WorstCaseClipping
from trafficdp.mechanisms.gaussian.gaussian_twin import GaussianTwin
from trafficdp.mechanisms.huber.gaussian_huber import GaussianHuber
from trafficdp.mechanisms.huber.huber import Huber
from trafficdp.mechanisms.laplace.baseline import Baseline
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.mechanisms.plan.iome import IOME
from trafficdp.mechanisms.plan.plan import Plan, Scaling
from trafficdp.mechanisms.two_moments import KnownTwoMoments, TwoMoments
from trafficdp.mechanisms.zcdp_mechanism import ZCDPMechanism
from trafficdp.mechanisms.zcdp_two_moments import ZCDPTwoMoments

AnyMechanism = Mechanism | ZCDPMechanism | ApproxMechanism

PURE_MECHANISMS: tuple[Mechanism, ...] = (
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
)
"""Of pure epsilon."""

ZCDP_MECHANISMS: tuple[ZCDPMechanism, ...] = (
    GaussianTwin(),
    ZCDPTwoMoments(Plan(Scaling.PRIVATE)),
    ZCDPTwoMoments(Plan(Scaling.PRIVATE, power=1)),
    ZCDPTwoMoments(Plan(Scaling.PUBLIC)),
    ZCDPTwoMoments(Plan(Scaling.NONE)),
    ZCDPTwoMoments(IOME()),
)
"""Of rho: zero-concentrated differential privacy."""

APPROX_MECHANISMS: tuple[ApproxMechanism, ...] = (GaussianHuber(),)
"""Of (epsilon, delta): compared and audited, never released."""

MECHANISMS: tuple[AnyMechanism, ...] = (*PURE_MECHANISMS, *ZCDP_MECHANISMS, *APPROX_MECHANISMS)
"""All kinds, with their default settings; names are unique."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Kind = TypeVar("Kind", bound=_Named)


def pure_mechanism_named(name: str) -> Mechanism:
    """Return the mechanism of pure epsilon of this name; raise UsageError when there is none."""
    return _named(name, PURE_MECHANISMS, "mechanism")


def zcdp_mechanism_named(name: str) -> ZCDPMechanism:
    """Return the zCDP mechanism of this name; raise UsageError when there is none."""
    return _named(name, ZCDP_MECHANISMS, "zCDP mechanism")


def _named(name: str, known: Sequence[Kind], what: str) -> Kind:
    for mechanism in known:
        if mechanism.name == name:
            return mechanism
    # one of another kind exists, but its losses do not add up with these
    elsewhere = any(name == each.name for each in MECHANISMS)
    raise UsageError(
        f"unknown {what}",
        got=f"{name}, which counts privacy loss in another kind" if elsewhere else name,
        expected="one of " + ", ".join(each.name for each in known),
        todo=did_you_mean(name, [each.name for each in known]),
    )
