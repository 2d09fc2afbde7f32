"""Composition of events into one loss a user."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import LARGEST_LOSS


def compose(events: Sequence[PrivacyEvent], users: int) -> npt.NDArray[np.int64]:
    """Return each user's total loss over ``events`` in pico-epsilons, shape (users,).

    Theorem A: if for every transcript sum_t D[t, l] / b_t <= eps_l, then data sets that differ in the
    values of user l have output densities within a factor e^eps_l, adaptively chosen queries and scales
    included. Losses of one user therefore add, and different users' never do.

    Raises UsageError for an event of another kind, another relation or another number of users, and for
    an idealised event, which no accountant may turn into a promise.
    """
    total = np.zeros(users, dtype=np.int64)
    for event in events:
        if not isinstance(event, PrivacyEvent):
            raise UsageError(
                "unknown kind of privacy event", got=type(event).__name__, expected=PrivacyEvent.__name__
            )
        if event.idealised:
            raise UsageError(
                "noise without an exact sampler cannot be accounted for",
                got=f"mechanism={event.mechanism!r}",
                expected="an exact mechanism",
            )
        if event.relation is not NeighbouringRelation.REPLACE_USER_VALUES:
            raise UsageError(
                "events of different relations do not compose",
                got=event.relation.value,
                expected=NeighbouringRelation.REPLACE_USER_VALUES.value,
            )
        loss = event.loss_per_user
        if loss.shape != (users,) or loss.dtype != np.int64:
            raise UsageError(
                "an event is about other users",
                got=f"losses of shape {loss.shape}, {loss.dtype}",
                expected=f"{(users,)}, int64",
            )
        if int(loss.min(initial=0)) < 0:
            raise UsageError("a privacy loss cannot be negative")
        # neither summand exceeds 10^18, so that the sum cannot wrap around
        if int(loss.max(initial=0)) <= LARGEST_LOSS:
            total = total + loss
            if int(total.max(initial=0)) <= LARGEST_LOSS:
                continue
        raise UsageError("privacy loss is too large to account for", expected="at most one million epsilon")
    return total
