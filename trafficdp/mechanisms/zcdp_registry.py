"""All zCDP mechanisms in one tuple, beside ``registry``'s of pure epsilon: the two kinds never mix."""

from __future__ import annotations

from trafficdp.errors import UsageError
from trafficdp.mechanisms.gaussian_twin import GaussianTwin
from trafficdp.mechanisms.plan import Plan, Scaling
from trafficdp.mechanisms.zcdp_mechanism import ZCDPMechanism

ZCDP_MECHANISMS: tuple[ZCDPMechanism, ...] = (
    GaussianTwin(),
    Plan(Scaling.PRIVATE),
    Plan(Scaling.PRIVATE, power=1),
    Plan(Scaling.PUBLIC),
    Plan(Scaling.NONE),
)
"""With their default settings; names are unique."""


def zcdp_mechanism_named(name: str) -> ZCDPMechanism:
    """Return the zCDP mechanism of this name; raise UsageError when there is none."""
    for mechanism in ZCDP_MECHANISMS:
        if mechanism.name == name:
            return mechanism
    raise UsageError(
        "unknown zCDP mechanism", got=name, expected="one of " + ", ".join(m.name for m in ZCDP_MECHANISMS)
    )
