"""From a request and public counts to an ``Allocation``: which bins, which noise. Nothing is spent."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from trafficdp.arrays import BoolArray, IntArray
from trafficdp.errors import UsageError
from trafficdp.mechanisms import registry, simulated_cities
from trafficdp.mechanisms.names import AUTO, BASELINE, BY_NAME, OTHER_NOISE, PROVED
from trafficdp.mechanisms.per_statistic_map import PerStatisticMechanism
from trafficdp.mechanisms.protocol import Accounting, CalibratedMechanism, JointRequest, PublicFacts
from trafficdp.model import Counts
from trafficdp.planner.allocation import Allocation, assess_utility, cities_of_request
from trafficdp.planner.choose import SIMULATED_ERROR_TOLERANCE, fit_mechanisms
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import Loss, LossKind

BLOCK_GAIN_TOLERANCE = 1e-3
"""Block noise is chosen when it gains more than this share over Laplace noise."""
EQUAL_GAIN_TOLERANCE = 1e-9
"""Equal noise is chosen when it gains more than this share over noise by each bin's sensitivity."""


def allocate(
    counts: Counts,
    request: Request,
    hour: IntArray | None = None,
    loss: Loss | None = None,
    *,
    allowed: BoolArray | None = None,
    thorough: bool = True,
) -> Allocation:
    """Return the planned release for ``request``: which bins, the best noise, and exact losses.

    From public counts and simulated cities alone. The loss that is charged never exceeds the one asked for,
    or ``loss`` in its place. ``hour`` is the hour of day of every bin of ``counts``, None where slots have
    none: simulated cities have rush hours. Only ``allowed`` bins get numbers, None: all may. Not
    ``thorough``: a quicker search for blocks, for maps that are only compared. Raises UsageError when no bin
    has ``min_vehicles`` vehicles, or no noise fits the loss.
    """
    request = request if loss is None else replace(request, loss=loss)
    keep, kept = kept_bins(counts, request.min_vehicles, allowed)
    facts = request.facts(kept)
    named = {statistic: request.mechanism_of(statistic) for statistic in request.tolerance}
    registry.require_together(named)
    hour = None if hour is None else hour[keep]
    if whole := next((name for name in named.values() if name in registry.JOINT_MECHANISMS), None):
        made = _joint(whole, keep, facts, request, f"{whole}: it was asked for by name")
        if isinstance(made.calibrated, simulated_cities.SimulatesOwnCity):
            reason = "nothing about a vehicle is public; errors are of "
            made = replace(made, reason=f"{reason}{request.fleet:,} vehicles in simulated cities")
        return replace(made, hour=hour)
    if {*named.values()} == {AUTO} and request.simulate:
        maps = {}
        for name in reversed(registry.PUBLIC_COUNTS):
            with suppress(UsageError):
                maps[name] = _joint(name, keep, facts, request, f"{name}: all statistics together")
        if maps:
            cities = cities_of_request(request, kept, hour)
            tried = simulated_cities.skills_of(
                [each.calibrated for each in maps.values()], request.loss, cities
            )
            maps = {
                name: replace(each, tried=own, hour=hour)
                for (name, each), own in zip(maps.items(), tried, strict=True)
            }
            return _least_error(maps)
    proved = {each: PROVED[request.loss.kind] if name == AUTO else name for each, name in named.items()}
    if {*proved.values()} <= {BASELINE}:
        return replace(_by_accounting(keep, kept, request, thorough=thorough), hour=hour)
    for statistic, name in proved.items():
        registry.require_releasable(
            name, statistic, request.loss.kind, allow_idealised=request.allow_idealised
        )
    tries = simulated_cities.SimulatedCities(kept, request.bound) if request.simulate else None
    parts, reason = fit_mechanisms(kept, replace(request, mechanism=proved), tries)
    calibrated = PerStatisticMechanism.calibrate(facts, request.loss, parts)
    event, error = calibrated.event(), calibrated.expected_errors()
    return Allocation(request, keep, kept, calibrated, event, error, reason, hour=hour)


def kept_bins(
    counts: Counts, min_vehicles: int, allowed: BoolArray | None = None
) -> tuple[BoolArray, Counts]:
    """Return which bins are released, a mask over all bins, and the public counts of those alone.

    Bins need ``min_vehicles`` vehicles and, where given, to be ``allowed``. Raises UsageError when none is
    left.
    """
    keep = counts.users_per_bin >= min_vehicles
    if allowed is not None:
        keep &= allowed
    kept = counts.select(keep)
    if kept.bins == 0:
        raise UsageError(
            "no bin can be released",
            got=f"{counts.bins} bins, none with {min_vehicles} vehicles",
            expected=f"at least one bin with min_vehicles={min_vehicles}",
            todo="choose a coarser resolution, a longer slot or a smaller min_vehicles",
        )
    return keep, kept


def _least_error(maps: Mapping[str, Allocation]) -> Allocation:
    """Return the map with the least error relative to one city-wide average, in simulated cities.

    A map's statistic that gains least decides; a near tie goes to the first. Maps that would be refused are
    left out, unless all would be.
    """
    score = {name: max(1 - skill.expected for skill in each.skill.values()) for name, each in maps.items()}
    # what would be refused is taken only where all would be
    free = [name for name, each in maps.items() if not assess_utility(each).refused] or list(maps)
    least = min(score[name] for name in free)
    taken = maps[next(name for name in free if score[name] <= least * (1 + SIMULATED_ERROR_TOLERANCE))]
    numbers = ", ".join(f"{name} {each:.3g}" for name, each in score.items())
    what = "errors in simulated cities, divided by that of one city-wide average"
    considered = {name: each.skill for name, each in maps.items()}
    return replace(taken, reason=f"auto: {taken.reason}; {what}: {numbers}", considered=considered)


def _joint(name: str, keep: BoolArray, facts: PublicFacts, request: Request, reason: str) -> Allocation:
    """Return the allocation of all statistics by one mechanism, which is given all of the loss.

    ``name`` is its name in JOINT_MECHANISMS.
    """
    wanted = JointRequest(
        request.statistics, request.fleet, request.per_slot, request.counts_percent, request.zone_km2
    )
    calibrated = registry.JOINT_MECHANISMS[name].calibrate(facts, request.loss, wanted)
    event, error = calibrated.event(), calibrated.expected_errors()
    return Allocation(request, keep, facts.counts, calibrated, event, error, reason)


def _by_accounting(keep: BoolArray, kept: Counts, request: Request, *, thorough: bool) -> Allocation:
    """Return the allocation by the baseline's noise, under the best accounting or the one that is named."""
    asked = kept, request.bound, request.tolerance
    accountings = registry.all_accountings(*asked, accounting=request.accounting, thorough=thorough)
    chosen, calibrated = _executed(accountings, request)
    event = calibrated.event()
    error = chosen.errors(float(request.loss.exact))
    what = OTHER_NOISE.get(chosen.name, f"baseline, accounting {chosen.name}")
    why = "it was asked for by name"
    if request.accounting == "best":
        why = "of all noise the one whose worst expected size is least, by public counts"
    return Allocation(request, keep, kept, calibrated, event, error, f"{what}: {why}", accountings, chosen)


def by_baseline(allocation: Allocation) -> Allocation:
    """Return the same bins with Laplace noise, to show what each accounting of it costs.

    Where that does not apply (rho, quantiles, no public counts) it returns ``allocation`` itself.
    """
    request = allocation.request
    if allocation.best is not None or request.relation.hides_presence or request.has_quantiles:
        return allocation
    if request.loss.kind is LossKind.ZCDP:
        return allocation
    return _by_accounting(allocation.keep, allocation.counts, request, thorough=True)


def _executed(
    accountings: tuple[Accounting, ...], request: Request
) -> tuple[Accounting, CalibratedMechanism]:
    """Return the accounting that is chosen and its noise; where "best" cannot be drawn, the best that can."""
    loss = request.loss.chargeable
    chosen = choose_accounting(accountings, request)
    try:
        return chosen, chosen.calibrate(loss)
    except UsageError:
        if request.accounting != "best" or chosen.name not in OTHER_NOISE:
            raise
    plain = tuple(accounting for accounting in accountings if accounting.name not in OTHER_NOISE)
    chosen = choose_accounting(plain, request)
    return chosen, chosen.calibrate(loss)


def choose_accounting(accountings: tuple[Accounting, ...], request: Request) -> Accounting:
    """Return the accounting that ``request`` names, or for "best" the one with the smallest worst noise.

    Worst noise is the largest scale in proportion to the tolerance of its statistic, from public counts. For
    "best", "equal" and then "blocks" must gain more than EQUAL_GAIN_TOLERANCE and BLOCK_GAIN_TOLERANCE; else
    it is "exact", as on a tie: no bin has more noise than by "equal" then. The choice is the same at every
    epsilon, since all noise falls in proportion. Raises UsageError for an unknown name, and for "blocks"
    where it is not among ``accountings``.
    """
    named = {accounting.name: accounting for accounting in accountings}
    if request.accounting in named:
        return named[request.accounting]
    if request.accounting == "blocks":
        raise UsageError(
            "the accounting blocks releases means and vehicle means, or mean and variance alone",
            got=", ".join(statistic.value for statistic in request.tolerance),
            todo='release these, or choose accounting = "best"',
        )
    if request.accounting != "best":
        raise UsageError(
            "unknown accounting",
            got=f"accounting={request.accounting!r}",
            expected=", ".join(("best", *BY_NAME)),
        )
    # basic and grid_count have the shape of exact and never less noise
    worst = {name: each.worst_relative_scale(1.0, request.tolerance) for name, each in named.items()}
    chosen = "exact"
    for name, gain in (("equal", EQUAL_GAIN_TOLERANCE), ("blocks", BLOCK_GAIN_TOLERANCE)):
        if name in named and worst[name] * (1 + gain) < worst[chosen]:
            chosen = name
    return named[chosen]
