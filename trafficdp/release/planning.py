"""The questions of `plan`, answered from public counts and the vehicles' accounts; plans that are saved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import numpy as np

from trafficdp import model
from trafficdp.arrays import FloatArray
from trafficdp.binning.cells import parents_of
from trafficdp.binning.places import hours_of_day, longer_slots_of, zone_km2
from trafficdp.config.settings import Config
from trafficdp.context.read import check_context
from trafficdp.errors import DataError, UninformativeReleaseError, UsageError, positive
from trafficdp.mechanisms.registry import calibrated_from_facts
from trafficdp.mechanisms.simulated_cities import SimulatesOwnCity
from trafficdp.planner import allocation as planner_allocation
from trafficdp.planner import suggest
from trafficdp.planner.adaptive import choose_mosaic
from trafficdp.planner.allocate import allocate, kept_bins
from trafficdp.planner.request import AdaptiveSettings, MapOption, Request
from trafficdp.privacy.budget import remaining_loss
from trafficdp.privacy.ledger import canonical
from trafficdp.privacy.loss import LOSS_TEXT, LOSSES, Loss, LossKind, PureDP, rounded_up
from trafficdp.release import results
from trafficdp.release.curator import Curator
from trafficdp.release.knowledge import fleet_released, known_speeds
from trafficdp.sensitive import Contributions
from trafficdp.store import store_files, vault_fixes, vault_ledger
from trafficdp.store.vault_fixes import is_imported

# A plan that was saved: the calibrated mechanism of a map, and what it was made from. Public facts alone.
#
# What it costs is not taken from the file but computed anew from the counts and the calibrated mechanism,
# whenever it is released. The noise is the calibrated mechanism's, whatever a newer version of the planner
# would choose now.


def _lists(arrays: Mapping[model.Statistic, FloatArray]) -> dict[str, list[float]]:
    return {each.value: own.tolist() for each, own in arrays.items()}


def _arrays(lists: Mapping[str, list[float]]) -> dict[model.Statistic, FloatArray]:
    return {model.Statistic(name): np.array(own, dtype=np.float64) for name, own in lists.items()}


@dataclass(frozen=True, kw_only=True)
class SavedPlan:
    """A plan as it was saved: all that is frozen of its Allocation.

    ``data_version`` names the data that it was made from, ``loss`` is what was asked for, ``calibrated`` the
    mechanism as its ``to_facts`` wrote it, and ``loss_pico`` what that costs, in 10^-12 of its kind.
    """

    data_version: str
    grid: model.Grid
    bound: model.ContributionBound
    loss: Annotated[Loss, LOSS_TEXT]
    tolerance: Mapping[model.Statistic, float]
    min_vehicles: int
    interval_level: float
    accounting: str
    mechanism: Mapping[model.Statistic, str]
    calibrated: Annotated[Mapping[str, Any], model.Coded(dict, dict)]
    error: Annotated[Mapping[model.Statistic, FloatArray], model.Coded(_lists, _arrays)]
    reason: str
    loss_pico: int

    @classmethod
    def of(cls, allocation: planner_allocation.Allocation, grid: model.Grid, data_version: str) -> SavedPlan:
        """Return the plan that freezes ``allocation``, made for ``grid`` from the data ``data_version``."""
        request = allocation.request
        return cls(
            data_version=data_version,
            grid=grid,
            bound=request.bound,
            loss=request.loss,
            tolerance=request.tolerance,
            min_vehicles=request.min_vehicles,
            interval_level=request.interval_level,
            accounting=allocation.best.name if allocation.best else request.accounting,
            mechanism=request.mechanism,
            calibrated=allocation.calibrated.to_facts(),
            error=allocation.error,
            reason=allocation.reason,
            loss_pico=allocation.loss.pico,
        )

    def to_json(self) -> str:
        """Return the canonical JSON text of all that is frozen, with its digest."""
        facts = model.as_json(self)
        return canonical({**facts, "sha256": hashlib.sha256(canonical(facts).encode()).hexdigest()})

    @classmethod
    def from_json(cls, text: str) -> SavedPlan:
        """Return the plan that ``to_json`` wrote; raise DataError where its digest does not match."""
        try:
            facts: dict[str, Any] = json.loads(text)
            digest = facts.pop("sha256")
            whole = hashlib.sha256(canonical(facts).encode()).hexdigest() == digest
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            whole = False
        if not whole:
            raise DataError(
                "a saved plan is not what was saved",
                got="another text than its digest says",
                todo="plan and save again",
            )
        return model.from_json(cls, facts)

    def require_data(self, data_version: str) -> None:
        """Raise UsageError unless the data is what the plan was made from."""
        if self.data_version != data_version:
            raise UsageError(
                "the data is not what this plan was made from",
                got=f"data version {data_version[:12]}",
                expected=f"data version {self.data_version[:12]}",
                todo="plan again on the data that there is now, and save it",
            )

    def allocation(self, counts: model.Counts, request: Request) -> planner_allocation.Allocation:
        """Return the Allocation that executes exactly the saved calibrated mechanism.

        ``counts`` has all bins of ``grid``. ``request`` is that of the configuration: what the plan froze
        replaces it. Raises UsageError for another speed bound, and DataError when the calibrated mechanism
        does not cost what was saved.
        """
        bound = self.bound
        if request.bound != bound:
            raise UsageError(
                "the plan was made for another speed bound or step",
                got=f"{float(request.bound.upper):g} {request.bound.unit.label}",
                expected=f"{float(bound.upper):g} {bound.unit.label}, and its step",
                todo="restore [map], or plan again",
            )
        named = replace(
            request,
            loss=self.loss,
            tolerance=self.tolerance,
            min_vehicles=self.min_vehicles,
            interval_level=self.interval_level,
            accounting=self.accounting,
            mechanism=self.mechanism,
        )
        grid = self.grid
        keep, kept = kept_bins(counts, named.min_vehicles, grid.may_publish(counts.cell, counts.slot))
        calibrated = calibrated_from_facts(self.calibrated, named.facts(kept))
        if isinstance(calibrated, SimulatesOwnCity):
            # what is expected of the fleet is not frozen: nothing that is asked rests on it
            calibrated = calibrated.with_expected_fleet(request.fleet, request.zone_km2)
        event = calibrated.event()
        if event.kind is not named.loss.kind or event.loss.pico != self.loss_pico:
            raise DataError(
                "a saved plan does not cost what it says",
                got=f"{event.kind.quantity} {event.loss}",
                expected=f"{named.loss.kind.quantity} {type(named.loss)(self.loss_pico)}",
                todo="plan and save again",
            )
        if event.idealised:
            raise UsageError(
                "a saved plan may not have noise without an exact sampler",
                got=event.mechanism,
                todo="`trafficdp release --allow-idealised-noise` is the only way",
            )
        hour = hours_of_day(grid, kept.slot)
        return planner_allocation.Allocation(
            named, keep, kept, calibrated, event, self.error, self.reason, hour=hour
        )


LookedAt = Callable[[model.Grid], None]
"""Told of every map before it is looked at, for a progress bar."""


class Planning:
    """Plans of one configuration on the newest version of the data, under the store's lock.

    Raises UsageError for an empty store and for another study area than that of the first file, ConfigError
    for a public layer that a release could not read: before anybody decides by a plan.
    """

    def __init__(self, curator: Curator, config: Config, looked_at: LookedAt | None = None) -> None:
        self._curator = curator
        self._config = replace(config, grid=config.measured_grid)
        same = config.grid.slot_kind is self._config.grid.slot_kind
        self._slot_not_measured = None if same else config.grid.slot_kind
        self.version = vault_fixes.data_version(curator.vault)
        """The version of the data that is planned with."""
        if not vault_fixes.number_of_files(curator.vault):
            raise UsageError("the store is empty", todo="run `trafficdp ingest FILE...` first")
        vault_fixes.pin_area(curator.vault, config.grid.area.hash, dry_run=True)
        check_context(config.context)
        self._looked_at = looked_at or (lambda grid: None)
        self._known: tuple[model.Grid, Contributions] | None = None

    def plan(self, loss: Loss | None, question: results.PlanQuestion) -> results.Plan:
        """Return the plan at ``loss`` (None: the configured one).

        ``question`` says what else is asked for. Raises UsageError when no record lies in area and period, no
        bin has ``min_vehicles`` vehicles, no loss is named and none is looked for, and
        UninformativeReleaseError when no map fits.
        """
        if question.saved is not None:
            if loss is not None or question.within_budget:
                raise UsageError(
                    f"a saved plan has its own {self._config.policy.kind.quantity}",
                    got="another wish beside it",
                    todo="release it as it is, or plan and save again",
                )
            return self._saved(
                question, SavedPlan.from_json(store_files.read_plan(self._curator.store, question.saved))
            )
        request = self._request(loss, question)
        if question.half_width is not None:
            self._config.require_public_counts(
                "a half width that is asked for",
                "plan with another epsilon, resolution or fleet: each plan says how far off its map is "
                "expected to be",
            )
            positive(max_half_width=question.half_width)
            if self._config.map.adaptive is not None:
                raise UsageError(
                    "an adaptive map has its half width in the configuration",
                    got=f"{question.half_width:g} for this plan",
                    todo="change [map] max_half_width, or remove [map] resolutions",
                )
            if question.search_maps:
                return self._finest_map(request, question, question.half_width)
            return self._least(request, question, question.half_width)
        if self._config.map.adaptive is not None:
            return self._adaptive(request, question, self._config.map.adaptive)
        return self._at(self._config.grid, request, question)

    def save(self, name: str, plan: results.Plan) -> None:
        """Save ``plan`` in the store under ``name``, frozen."""
        frozen = SavedPlan.of(plan.allocation, plan.grid, self.version.name)
        store_files.save_plan(self._curator.store, name, frozen.to_json())

    def contributions(self) -> Contributions:
        """Return what the configured map is planned with; it may have no bins. See ``Curator.counted``."""
        return self._contributions(self._config.grid, may_be_empty=True)

    def _adaptive(
        self, request: Request, question: results.PlanQuestion, settings: AdaptiveSettings
    ) -> results.Plan:
        """The map of several resolutions; at a smaller loss it is another, until every vehicle can pay."""
        fine = self._contributions(self._config.grid).counts
        asked = None
        while True:
            chosen = choose_mosaic(self._config.grid, fine, settings, request)
            grid = replace(self._config.grid, mosaic=chosen.mosaic)
            plan = self._at(grid, request, question)
            if plan.asked is None:
                return replace(plan, adaptive=chosen, asked=asked)
            asked = asked or plan.asked
            request = replace(request, loss=plan.allocation.request.loss)

    def _request(
        self, loss: Loss | None, question: results.PlanQuestion, grid: model.Grid | None = None
    ) -> Request:
        """What is asked of the planner, of ``grid`` or the configured one."""
        grid = grid or self._config.grid
        if loss is None and self._config.loss is None and question.half_width is not None:
            # the least is looked for, whatever this is
            loss = LOSSES[self._config.policy.kind].of(1)
        request = self._config.request(loss)
        if question.half_width is not None:
            request = request.with_proved_intervals()
        request = replace(request, known=known_speeds(self._curator, self._config, grid, self.version))
        if not request.relation.hides_presence:
            return request
        request = replace(request, zone_km2=zone_km2(grid))
        if self._config.map.fleet is None:
            known = fleet_released(self._curator)
            if known is None:
                raise UsageError(
                    "nobody says how many vehicles are expected, and what a map says rests on it",
                    got="no [map] fleet, and no earlier release that counted them with noise",
                    todo="write [map] fleet = NUMBER, from a public register or timetable and never from the "
                    "records",
                )
            request = replace(request, fleet=known[1], fleet_by=f"as release {known[0]} found, with noise")
        share = results.expected_share_of_fleet(grid)
        return replace(request, fleet=max(1, round(request.fleet * share))) if share < 1 else request

    def _at(
        self,
        grid: model.Grid,
        request: Request,
        question: results.PlanQuestion,
        answer: results.Answer | None = None,
        saved: SavedPlan | None = None,
    ) -> results.Plan:
        """Return the plan of ``request`` on ``grid``.

        ``saved`` gives a frozen plan instead of a new one. The plan says what the vehicles' budgets of today
        can pay. ``answer`` is what a question for the least loss or the best map found, to be kept in it.
        """
        here = self._contributions(grid)
        frozen = None if saved is None else saved.allocation(here.counts, request)
        at = _allocating(grid, here.counts, request if frozen is None else frozen.request)
        allocation = at(request.loss) if frozen is None else frozen
        windows = self._config.policy.windows(datetime.now(UTC))
        spent = [vault_ledger.spent(self._curator.vault, here.vehicle, each) for each in windows]
        remainders = remaining_loss(windows, spent)
        able = planner_allocation.affordable(allocation, remainders, at)
        asked = None
        if question.within_budget and able.loss is not None and able.loss < request.loss:
            asked, allocation = request.loss, at(able.loss)
            able = planner_allocation.affordable(allocation, remainders, at)
        self._config.check_promise(allocation.vehicles)
        request, verdict = allocation.request, planner_allocation.assess_utility(allocation)
        advised = verdict.refused and question.suggestions and grid.mosaic is None
        # in rho an epsilon that passes cannot be told
        hidden = request.relation.hides_presence
        advised = advised and (request.loss.kind is LossKind.PURE or hidden)
        advised = advised and not is_imported(self._curator.vault.connection)  # no other map is there
        cost = allocation.event.loss_per_user
        paying = cost > 0
        before = remainders[paying].min(initial=self._config.policy.total.pico)
        after = (remainders - cost)[paying].min(initial=self._config.policy.total.pico)
        loss_of = LOSSES[request.loss.kind]
        suggestions, growing = None, None
        if advised:
            suggestions = suggest.suggest(grid, request, self._counts, self._guess, self._asked_epsilon)
            # of an answer, and of vehicles that are not public, it is not told
            if suggestions.epsilon is not None and not (answer or hidden):
                growing = self._growth_of_refused(grid, request, suggestions.epsilon)
        return results.Plan(
            allocation=allocation,
            verdict=verdict,
            suggestions=suggestions,
            budget_left=loss_of(int(before)),
            left_after=loss_of(max(0, int(after))),
            grid=grid,
            precision=planner_allocation.precision(allocation),
            affordable=able,
            growth=growing,
            answer=answer,
            asked=asked,
            in_epsilon=self._in_epsilon(allocation.loss),
            slot_not_measured=self._slot_not_measured,
        )

    def _asked_epsilon(self, loss: Loss) -> float:
        return float((self._config.policy.epsilon(loss) or loss).exact)

    def _in_epsilon(self, loss: Loss) -> results.InEpsilon | None:
        policy = self._config.policy
        alone = policy.epsilon(loss)
        if policy.delta is None or alone is None:
            return None
        before = type(loss)(vault_ledger.totals(self._curator.vault).sum_of_maxima)
        of_sum = policy.epsilon(before + loss)
        if of_sum is None:
            return None
        return results.InEpsilon(policy.delta, alone, of_sum)

    def _saved(self, question: results.PlanQuestion, saved: SavedPlan) -> results.Plan:
        """The plan as it was frozen, on the same data; who can pay it is looked at anew."""
        saved.require_data(self.version.name)
        grid = saved.grid
        if grid.area.hash != self._config.grid.area.hash:
            raise UsageError("the plan was made for another study area", todo="plan again, and save it")
        return self._at(grid, self._request(saved.loss, question, grid), question, saved=saved)

    def _least(self, request: Request, question: results.PlanQuestion, width: float) -> results.Plan:
        """The least loss for the configured map, for the median bin and for every bin."""
        grid = self._config.grid
        counts = self._contributions(grid).counts
        at = _allocating(grid, counts, request)
        # an error of the map itself is told before any search, whatever loss is configured
        at(LOSSES[request.loss.kind].of(1))
        needed = {
            goal: suggest.least_loss(at, request.loss.kind, width, goal)
            for goal in planner_allocation.WidthGoal
        }
        found = needed[question.goal]
        if found is None:
            raise UninformativeReleaseError(
                f"no {request.loss.kind.quantity} makes the intervals so narrow",
                got=f"a half width of {self._shown(request, width)}",
                expected="one that is wider than the rounding of speeds alone",
                todo="ask for a wider one, or choose a smaller speed_step",
            )
        of_median, of_every = (needed[each] for each in planner_allocation.WidthGoal)
        answer = results.Answer(width, question.goal, of_median, of_every)
        plan = self._at(grid, replace(request, loss=found), question, answer)
        if found > plan.budget_left and plan.budget_left.pico > 0:
            wider = suggest.data_needed(
                grid, found, plan.budget_left, self._needed_for(request, width, question.goal)
            )
            plan = replace(plan, growth=wider)
        return plan

    def _finest_map(self, request: Request, question: results.PlanQuestion, width: float) -> results.Plan:
        """The finest map that is precise enough at the loss there is."""
        # an empty study area is told before any search
        self._contributions(self._config.grid)
        options = suggest.try_maps(
            self._config.grid, request, width, question.goal, self._counts, self._looked_at
        )
        chosen = suggest.best_fitting_map(options)
        if chosen is None:
            raise self._nothing_fits(request, question, width, options)
        answer = results.Answer(width, question.goal, options=tuple(options), chosen=chosen)
        here = next(
            (option for option in options if option.grid == self._config.grid and not option.fits), None
        )
        if here is not None and here.loss is not None:
            needed_on = self._needed_for(request, width, question.goal)
            answer = replace(
                answer,
                growth_of_configured=suggest.data_needed(
                    self._config.grid, here.loss, request.loss, needed_on
                ),
            )
        asked = replace(request, min_vehicles=chosen.min_vehicles)
        return self._at(chosen.grid, asked, question, answer)

    def _nothing_fits(
        self, request: Request, question: results.PlanQuestion, width: float, options: list[MapOption]
    ) -> UninformativeReleaseError:
        asked, quantity = self._shown(request, width), request.loss.kind.quantity
        near = suggest.nearest(options)
        narrowest = min(options, key=lambda option: option.half_width, default=None)
        ways = []
        if narrowest is not None:
            ways.append(
                f"at {quantity} {request.loss} the narrowest is "
                f"{self._shown(request, narrowest.half_width)}, "
                f"with {_settings(narrowest)}"
            )
        if near is not None and near.loss is not None:
            ways.append(f"{asked} would take {quantity} {near.loss}, with {_settings(near)}")
            wider = suggest.data_needed(
                near.grid, near.loss, request.loss, self._needed_for(request, width, question.goal)
            )
            ways.append(f"or {max(wider.vehicles, 1.1):.2g} times as many vehicles that drive like these")
        return UninformativeReleaseError(
            f"no map is that precise at that {quantity}",
            got=f"{quantity} {request.loss} and a half width of {asked}",
            todo="; ".join(ways) or "gather more vehicles",
        )

    def _growth_of_refused(
        self, grid: model.Grid, request: Request, epsilon: float
    ) -> suggest.DataNeeded | None:
        """How far the counts would have to grow for the refused map, which needs ``epsilon``, to pass."""

        def needed_on(candidate: model.Grid) -> Loss | None:
            return suggest.Maps(self._counts(candidate), candidate, request).least_passing_loss()

        return suggest.data_needed(grid, PureDP.of(rounded_up(epsilon)), request.loss, needed_on)

    def _needed_for(
        self, request: Request, width: float, goal: planner_allocation.WidthGoal
    ) -> Callable[[model.Grid], Loss | None]:
        def needed_on(candidate: model.Grid) -> Loss | None:
            counts = self._counts(candidate)
            if not bool(np.any(counts.users_per_bin >= request.min_vehicles)):
                return None
            return suggest.least_loss(_allocating(candidate, counts, request), request.loss.kind, width, goal)

        return needed_on

    def _contributions(self, grid: model.Grid, *, may_be_empty: bool = False) -> Contributions:
        """Return ``Curator.counted`` on ``grid``; that of the configured map is cached.

        Raises UsageError when the map has no bin, unless it ``may_be_empty``.
        """
        if self._known is not None and self._known[0] == grid:
            found = self._known[1]
        else:
            found = self._curator.counted(grid, self._config.map.bound, self.version)
            if grid == self._config.grid:
                self._known = grid, found
        if found.counts.bins == 0 and not may_be_empty:
            raise UsageError(
                "no record lies in the study area and the period",
                got=f"{grid.period.first} to {grid.period.last}",
                todo="correct [city] period or ingest files of that period",
            )
        return found

    def _counts(self, grid: model.Grid) -> model.Counts:
        """Return the counts of ``grid``; those of unions of the configured slots are merged from these."""
        self._looked_at(grid)
        own, kind = self._config.grid, grid.slot_kind
        if kind not in model.LONGER[own.slot_kind] or grid != replace(own, slot_kind=kind):
            return self._contributions(grid, may_be_empty=True).counts
        here = self._contributions(own, may_be_empty=True).counts
        return here.merged(here.cell, longer_slots_of(own, here.slot, kind) - model.OFFSET[kind]).counts

    def _guess(self, grid: model.Grid) -> model.Counts:
        """Return approximate counts of ``grid`` quickly, by merging the configured hexagons into parents."""
        own = self._config.grid.resolution
        if grid.resolution is not None and own is not None and grid.resolution > own:
            return self._counts(grid)
        here = self._counts(replace(grid, resolution=own))
        cell = here.cell if grid.resolution is None else parents_of(here.cell, grid.resolution)
        return here.merged(cell, here.slot).counts

    def _shown(self, request: Request, width: float) -> str:
        """Return ``width`` with its unit, as people are told it."""
        factor, unit = request.factor(request.main), request.main.unit(request.display_unit)
        return f"{width * factor:.4g} {unit}"


def uninformative_plan_error(plan: results.Plan) -> UninformativeReleaseError:
    """Return (do not raise) the error that refuses ``plan`` as too inaccurate, and says what would pass."""
    todo = None if plan.suggestions is None else plan.suggestions.in_words(plan.budget_left)
    return planner_allocation.uninformative_error(plan.verdict, plan.allocation.request, todo)


def _allocating(
    grid: model.Grid, counts: model.Counts, request: Request
) -> Callable[[Loss], planner_allocation.Allocation]:
    """Return a function that plans ``request`` on ``grid`` from ``counts`` at the loss it is given."""
    hour, allowed = hours_of_day(grid, counts.slot), grid.may_publish(counts.cell, counts.slot)
    return partial(allocate, counts, request, hour, allowed=allowed)


def _settings(option: MapOption) -> str:
    grid = option.grid
    return f'{grid.in_words()}, slot "{grid.slot_kind.value}", min_vehicles {option.min_vehicles}'
