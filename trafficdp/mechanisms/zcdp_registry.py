"""All zCDP mechanisms in one tuple, beside ``registry``'s of pure epsilon: the two kinds never mix."""

from __future__ import annotations

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
