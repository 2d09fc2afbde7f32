"""A plan that was saved: the calibrated mechanism of a map, and what it was made from. Public facts alone.

What it costs is not taken from the file but computed anew from the counts and the calibrated mechanism,
whenever it is released. The noise is the calibrated mechanism's, whatever a newer version of the planner
would choose now.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from trafficdp.errors import DataError, UsageError
from trafficdp.mechanisms.registry import calibrated_from_facts
from trafficdp.mechanisms.simulated.cities import TriedElsewhere
from trafficdp.model import Counts, Grid, Statistic
from trafficdp.planner.allocation import Allocation
from trafficdp.planner.request import Request
from trafficdp.privacy.ledger import canonical
from trafficdp.privacy.loss import LOSSES, Loss, LossKind
from trafficdp.privacy.release_codec import bound_from_facts, bound_to_facts, grid_from_facts, grid_to_facts


@dataclass(frozen=True)
class SavedPlan:
    """``text`` is the canonical JSON of all that is frozen; ``facts`` the same read, its digest checked."""

    text: str

    @classmethod
    def of(cls, name: str, allocation: Allocation, grid: Grid, data_version: str, at: datetime) -> SavedPlan:
        """Freeze ``allocation`` of ``grid`` on the data ``data_version``."""
        request = allocation.request
        facts = {
            "name": name,
            "saved_at": at.isoformat(),
            "data_version": data_version,
            "grid": grid_to_facts(grid),
            "bound": bound_to_facts(request.bound),
            request.kind.pico_key: request.loss.pico,
            "tolerance": {each.value: tolerance for each, tolerance in request.tolerance.items()},
            "min_vehicles": request.min_vehicles,
            "interval_level": request.interval_level,
            "accounting": allocation.best.name if allocation.best else request.accounting,
            "mechanism": {each.value: name for each, name in request.mechanism.items()},
            "calibrated": allocation.calibrated.to_facts(),
            "error": {each.value: error.tolist() for each, error in allocation.error.items()},
            "reason": allocation.reason,
            "loss_pico": allocation.loss.pico,
        }
        digest = hashlib.sha256(canonical(facts).encode()).hexdigest()
        return cls(canonical({**facts, "sha256": digest}))

    @property
    def facts(self) -> dict[str, Any]:
        """Raise DataError for a text that is not what was saved."""
        try:
            found: dict[str, Any] = json.loads(self.text)
            digest = found.pop("sha256")
            whole = hashlib.sha256(canonical(found).encode()).hexdigest() == digest
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            whole = False
        if not whole:
            raise DataError(
                "a saved plan is not what was saved",
                got="another text than its digest says",
                todo="plan and save again",
            )
        return found

    @property
    def grid(self) -> Grid:
        """The map that was planned."""
        return grid_from_facts(self.facts["grid"])

    @property
    def loss(self) -> Loss:
        """The loss that was asked for."""
        facts = self.facts
        return next(LOSSES[kind](facts[kind.pico_key]) for kind in LossKind if kind.pico_key in facts)

    def require_data(self, data_version: str) -> None:
        """Raise UsageError unless the data is what the plan was made from."""
        if self.facts["data_version"] != data_version:
            raise UsageError(
                "the data is not what this plan was made from",
                got=f"data version {data_version[:12]}",
                expected=f"data version {self.facts['data_version'][:12]}",
                todo="plan again on the data that there is now, and save it",
            )

    def allocation(
        self,
        counts: Counts,
        request: Request,
        allocate: Callable[[Counts, Request], Allocation],
    ) -> Allocation:
        """Return the Allocation that executes exactly the saved calibrated mechanism.

        ``counts`` has all bins of ``grid``. ``request`` is that of the configuration: what the plan froze
        replaces it. The accountings beside it is computed by ``allocate`` and decides nothing. Raises
        UsageError for another speed bound, and DataError when the calibrated mechanism does not cost what was
        saved.
        """
        facts = self.facts
        if bound_to_facts(request.bound) != facts["bound"]:
            raise UsageError(
                "the plan was made for another speed bound or step",
                got=f"{float(request.bound.upper):g} {request.bound.unit.label}",
                expected=f"{float(bound_from_facts(facts['bound']).upper):g} "
                f"{bound_from_facts(facts['bound']).unit.label}, and its step",
                todo="restore [map], or plan again",
            )
        frozen = replace(
            request,
            loss=self.loss,
            tolerance=_by_statistic(facts["tolerance"]),
            min_vehicles=facts["min_vehicles"],
            interval_level=facts["interval_level"],
            accounting=facts["accounting"],
        )
        named = replace(frozen, mechanism=_by_statistic(facts["mechanism"]))
        # in epsilon the accountings of the baseline are shown beside it
        beside = allocate(counts, replace(frozen, mechanism={}))
        calibrated = calibrated_from_facts(facts["calibrated"], frozen.facts(beside.counts))
        if isinstance(calibrated, TriedElsewhere):
            # what is expected of the fleet is not frozen: nothing that is asked rests on it
            calibrated = calibrated.expecting(request.fleet, request.zone_km2)
        event = calibrated.event()
        if event.kind is not named.kind or event.loss.pico != facts["loss_pico"]:
            raise DataError(
                "a saved plan does not cost what it says",
                got=f"{event.kind.quantity} {event.loss}",
                expected=f"{named.kind.quantity} {type(named.loss)(facts['loss_pico'])}",
                todo="plan and save again",
            )
        if event.idealised:
            raise UsageError(
                "a saved plan may not have noise without an exact sampler",
                got=event.mechanism,
                todo="`trafficdp release --allow-idealised-noise` is the only way",
            )
        return replace(
            beside,
            request=named,
            calibrated=calibrated,
            event=event,
            error={
                statistic: np.array(error, dtype=np.float64)
                for statistic, error in _by_statistic(facts["error"]).items()
            },
            reason=facts["reason"],
        )


def _by_statistic(facts: Mapping[str, Any]) -> dict[Statistic, Any]:
    return {statistic: facts[statistic.value] for statistic in Statistic if statistic.value in facts}
