"""The Gaussian twin of equal scales, for comparison only: what zCDP would ask for the same error.

With Gaussian noise of one sd for all items (over their tolerance) user l loses
rho_l = sum_i D_{i,l}^2 / (2 sd^2) (Bun, Steinke 2016), so rho = max_l |D_l|_2^2 / (2 sd^2), and no other sds
with the same maximum are better, by the argument for equal scales. E|z| = sd sqrt(2/pi).
"""

from __future__ import annotations

import math

import numpy as np

from trafficdp._validate import positive
from trafficdp.mechanisms.blocks.items import Items
from trafficdp.privacy.conversion import gaussian_to_approx
from trafficdp.privacy.loss import ZCDP


def gaussian_rho(items: Items, error: float) -> float:
    """Return the rho at which every item's expected absolute noise is ``error`` times its tolerance."""
    positive(error=error)
    squares = np.bincount(items.user, weights=items.cost**2, minlength=items.users)
    return float(squares.max(initial=0.0)) / (math.pi * error**2)


def gaussian_epsilon(items: Items, error: float, delta: float) -> float:
    """Return the exact epsilon at ``delta`` of that noise: one Gaussian in as many dimensions as items."""
    rho = gaussian_rho(items, error)
    return float(gaussian_to_approx(ZCDP.of(rho), delta).epsilon) if rho > 0 else 0.0
