"""The packing of ``planner.packing`` as an integer program, for cities small enough to solve it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from trafficdp.planner.packing import WHOLE, Forest, Packing

ENTRIES = 6_000
"""Largest number of entries that is tried."""
NODES = 60
"""Nodes of the search after which the best choice so far is taken. Counted, never timed."""
OPTIMAL, LIMIT_REACHED = 0, 1


def solve(forest: Forest, *, nodes: int = NODES) -> Packing | None:
    """Return the best choice that HiGHS finds within ``nodes``, and its bound; None when it finds none.

    The choice is kept only if it fits in the whole units of ``packing.fill``.
    """
    row, candidate, cost = forest.rows
    # on a path one candidate is all: "more than half" would be lost in the solver's tolerance
    share = np.where(row < forest.users, cost / WHOLE, 1.0)
    table = sparse.csr_matrix((share, (row, candidate)), shape=(int(row.max()) + 1, forest.number))
    result = milp(
        -forest.value,
        integrality=np.ones(forest.number, dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(table, ub=np.ones(table.shape[0])),
        options={"node_limit": nodes, "mip_rel_gap": 1e-6},
    )
    if result.status not in (OPTIMAL, LIMIT_REACHED) or result.x is None:
        return None
    chosen: npt.NDArray[np.bool_] = np.asarray(result.x > 0.5)
    load = np.zeros(table.shape[0], dtype=np.int64)
    np.add.at(load, row, np.where(chosen[candidate], cost, 0))
    if int(load.max(initial=0)) > WHOLE:
        return None
    value = float(forest.value[chosen].sum())
    # the solver's bound is in floating point: a millionth more is granted to it
    return Packing(chosen, value, max(value, -float(result.mip_dual_bound) * (1 + 1e-6)))
