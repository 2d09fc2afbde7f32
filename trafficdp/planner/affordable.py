"""What the vehicles of a map can still pay: Tuesday's map charges Tuesday's vehicles, each its own loss.

Every vehicle has its own account, so what is left of it is a ceiling of its own: the loss of vehicle l, not
the largest of the map, must not exceed left_l.

Theorem. Let losses be l_l / B at noise of size B (as on every accounting: they fall in proportion). Under
ceilings c_l = min(epsilon, left_l) the least B at a given shape is max_l l_l / c_l, which is the noise of the
whole map at epsilon' = min(epsilon, min_l left_l L / l_l), L = max_l l_l. And for equal scales (b_g = B t_g)
no other unsuppressed Laplace scales have a smaller largest b_g / t_g: any with b_g <= B t_g cost vehicle l at
least l_l / B, so that B >= l_l / c_l for every l. So individual ceilings need no scales of their own: they
come down to an epsilon' for the map, which is larger than the least remainder wherever the vehicle that has
least left does not lose most.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.planner.allocation import Allocation
from trafficdp.planner.findings import Affordable
from trafficdp.privacy.loss import CHARGE_STEP, Loss

IntArray = npt.NDArray[np.int64]
ATTEMPTS = 20


def affordable(
    allocation: Allocation, left: IntArray, allocate_at: Callable[[Loss], Allocation]
) -> Affordable:
    """Return who can pay ``allocation``. ``left`` (users,) is what each may still lose, in 10^-12.

    ``allocate_at`` plans the same map at a smaller loss: what is returned was planned and fits all.
    """
    cost = allocation.event.loss_per_user
    paying = cost > 0
    short, empty = paying & (cost > left), paying & (left < CHARGE_STEP)
    visited = np.zeros(allocation.counts.bins, dtype=np.bool_)
    visited[allocation.counts.bin_index[empty[allocation.counts.user_index]]] = True
    return Affordable(
        paying=int(np.count_nonzero(paying)),
        short=int(np.count_nonzero(short)),
        empty=int(np.count_nonzero(empty)),
        loss=_payable(allocation, left, allocate_at),
        bins_without_empty=int(np.count_nonzero(~visited)),
    )


def _payable(
    allocation: Allocation, left: IntArray, allocate_at: Callable[[Loss], Allocation]
) -> Loss | None:
    asked = allocation.request.loss
    pico = asked.pico
    for _ in range(ATTEMPTS):
        cost = allocation.event.loss_per_user
        paying = cost > 0
        if not bool(np.any(cost[paying] > left[paying])):
            return allocation.request.loss
        share = float(np.min(left[paying] / cost[paying]))
        # a little less: every loss is rounded up to a charge step
        pico = min(int(pico * share), pico - CHARGE_STEP) // CHARGE_STEP * CHARGE_STEP
        if pico < CHARGE_STEP:
            return None
        try:
            allocation = allocate_at(type(asked)(pico))
        except UsageError:
            return None
    return None
