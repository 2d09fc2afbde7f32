"""What a stream was charged for, frozen; and the release that each of its publications is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.binning.slots import slot_facts
from trafficdp.config.stream import StreamSettings
from trafficdp.context.names import place_names
from trafficdp.export.files.disclosure import (
    Charge,
    MechanismFacts,
    Noise,
    Verdict,
    bin_numbers,
    bounds_of,
    coverage_of,
    disclosure,
    rfc3339,
)
from trafficdp.mechanisms import publish
from trafficdp.mechanisms.protocol import ASSUMPTIONS
from trafficdp.mechanisms.publish import bin_status, rounding_bias
from trafficdp.model import (
    NO_CATALOGUE_ENTRY,
    CatalogueEntry,
    ContributionBound,
    Grid,
    NeighbouringRelation,
    SpeedUnit,
    Statistic,
    as_json,
    from_json,
)
from trafficdp.noise.secure import OPENDP_VERSION
from trafficdp.noise.tail import clamped_sum_error, half_width_of_sum
from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.disclosure import BudgetChange, Data, NoiseStated, StreamStated, TreeShape
from trafficdp.privacy.estimate import BinStatus, Estimate, RefusalRule
from trafficdp.privacy.ledger import canonical
from trafficdp.privacy.loss import Loss, PureDP
from trafficdp.privacy.release import (
    LedgerReference,
    Release,
    bound_from_facts,
    bound_to_facts,
    grid_from_facts,
    grid_to_facts,
)
from trafficdp.release.specification import ROUNDING, source_facts, stated_identity
from trafficdp.stream.horizon import Horizon
from trafficdp.stream.service import MEAN, SQUARE, Allowance, Closed, Stream

# From noisy sums to published numbers: means and variances of every bin so far, with intervals.
#
# With N records, X the noisy sum of x and Y that of x (S - x), in steps: mean m = X/N and variance
# v = m (S - m) - Y/N, clipped to [0, S] and [0, m (S - m)] (Bhatia and Davis).
#
# *Intervals.* X - sum x is a sum of ``terms`` independent discrete Laplace draws, of either sign: it exceeds
# h_X with probability at most 1 - level (``noise.tail``). For the variance, h_X and h_Y are both taken
# at 1 - (1 - level)/2; m (S - m) is monotone on either side of S/2, so over [m - h_X/N, m + h_X/N] its
# extremes are at the ends or at S/2; the interval is the range of the difference. Rounding of
# speeds is added as a bias (``publish.rounding_bias``). All of it holds at every publication by
# itself, not at all of them at once.
#
# *Expected error*, worst case over the truth: for the mean that of the clamped sum; m (S - m) moves at most S
# times as far as m, so a variance is off by at most S times the mean's error and that of Y/N.


FloatArray = npt.NDArray[np.float64]


def estimates_of(
    closed: Closed,
    statistics: Sequence[Statistic],
    allowance: Allowance,
    bound: ContributionBound,
    *,
    interval_level: float,
    min_vehicles: int,
) -> dict[Statistic, Estimate]:
    """Return the estimates over all bins of ``closed``, NaN and WITHHELD below ``min_vehicles``.

    ``statistics`` are MEAN, VARIANCE or both.
    """
    makers = {Statistic.MEAN: _mean, Statistic.VARIANCE: _variance}
    keep = closed.vehicles >= min_vehicles
    return {
        statistic: _withheld(makers[statistic](closed, allowance, bound, interval_level), keep)
        for statistic in Statistic
        if statistic in statistics
    }


def _mean(closed: Closed, allowance: Allowance, bound: ContributionBound, level: float) -> Estimate:
    upper, step = float(bound.upper), float(bound.step)
    records = closed.records.astype(np.float64)
    bias = publish.rounding_bias(Statistic.MEAN, bound)
    drawn = publish.Drawn(
        value=closed.sums[:, MEAN] * step / records,
        half_width=_half(allowance.mean_scale, closed, level) * step / records + bias,
        noise_scale=allowance.mean_scale * step / records,
        expected_error=np.minimum(
            _sum_error(allowance.mean_scale, closed, upper / step) * step + bias, upper
        ),
        noise=_noise_columns(allowance.mean_scale, closed),
    )
    return publish.estimate(Statistic.MEAN, drawn, bound)


def _variance(closed: Closed, allowance: Allowance, bound: ContributionBound, level: float) -> Estimate:
    steps, square = float(bound.steps), float(bound.step) ** 2
    reach = Statistic.VARIANCE.largest(float(bound.upper))
    records = closed.records.astype(np.float64)
    bias = publish.rounding_bias(Statistic.VARIANCE, bound)
    both = 1 - (1 - level) / 2
    mean = publish.clamped(Statistic.MEAN, closed.sums[:, MEAN] / records, steps)
    second = publish.clamped(Statistic.VARIANCE, closed.sums[:, SQUARE] / records, steps)
    far = _half(allowance.mean_scale, closed, both) / records
    lowest, highest = np.maximum(mean - far, 0.0), np.minimum(mean + far, steps)
    ends = np.stack([publish.largest_variance(end, steps) for end in (lowest, highest)])
    across = (lowest <= steps / 2) & (steps / 2 <= highest)
    most = np.where(across, steps * steps / 4, ends.max(axis=0))
    off = _half(allowance.square_scale, closed, both) / records
    value = publish.largest_variance(mean, steps) - second
    value = publish.clamped(Statistic.VARIANCE, value, steps, mean) * square
    low = (ends.min(axis=0) - second - off) * square - bias
    high = (most - second + off) * square + bias
    error = _sum_error(allowance.square_scale, closed, steps * steps / 4)
    error = (error + steps * _sum_error(allowance.mean_scale, closed, steps)) * square + bias
    error = np.minimum(error, reach)
    # the variance of one record is 0, whatever its speed
    one = closed.records == 1
    value, low, high, error = (np.where(one, 0.0, each) for each in (value, low, high, error))
    scale = np.where(one, 0.0, allowance.square_scale * square / records)
    low, high = publish.interval(Statistic.VARIANCE, value, low, high, float(bound.upper))
    return Estimate(
        statistic=Statistic.VARIANCE,
        value=value,
        low=low,
        high=high,
        noise_scale=scale,
        expected_error=error,
        status=publish.status_of(error, Statistic.VARIANCE, bound),
        noise=_noise_columns(allowance.square_scale, closed),
    )


def _half(scale: int, closed: Closed, level: float) -> FloatArray:
    return half_width_of_sum(np.full(len(closed.records), float(scale)), closed.terms, level)


def _sum_error(scale: int, closed: Closed, reach: float) -> FloatArray:
    """The expected error of a noisy sum over N, in steps, clamped to [0, reach]; rounding of integers in."""
    records = closed.records.astype(np.float64)
    noise = clamped_sum_error(scale / records, closed.terms, reach)
    return np.minimum(noise + closed.terms / records, reach)


def _noise_columns(scale: int, closed: Closed) -> dict[str, npt.NDArray[np.generic]]:
    """The columns that price a vehicle again: every node's scale, and how many draws the number carries."""
    return {"lattice_scale": np.full(len(closed.records), float(scale)), "noise_terms": closed.terms}


def _withheld(estimate: Estimate, keep: npt.NDArray[np.bool_]) -> Estimate:
    names = ("value", "low", "high", "noise_scale", "expected_error")
    numbers: dict[str, Any] = {name: np.where(keep, getattr(estimate, name), np.nan) for name in names}
    status = np.where(keep, estimate.status, BinStatus.WITHHELD.value).astype(object)
    noise = dict(estimate.noise)
    noise["lattice_scale"] = np.where(keep, noise["lattice_scale"].astype(np.float64), np.nan)
    noise["noise_terms"] = np.where(keep, noise["noise_terms"], 0)
    return replace(estimate, status=status, noise=noise, **numbers)


# What a stream was charged for, frozen; and the release that each of its publications is.


CEILINGS = "budget_pico", "budget_changes"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MECHANISM = "running sums"
CITATION = (
    "George et al. 2022 (arXiv 2212.09980), continual release at user level; binary mechanism of Chan, Shi, "
    "Song 2011 with signed digits (Andersson, Pagh, Torkamani 2024)"
)
COMPOSITION = (
    "one epsilon for the whole period, all bins and all publications: every record costs a vehicle the share "
    "of the nodes that it lies in, and a vehicle's records stop counting when its account of nodes is used up"
)
INTERVALS = "proved tail of a sum of discrete Laplace draws, widened by the worst-case bias"
POST_PROCESSING = {
    Statistic.MEAN: "means are clamped to the range of the clipped speeds",
    Statistic.VARIANCE: "variances come from two noisy sums and are clamped to 0 .. mean (U - mean), by the "
    "mean of the same sums",
}
BOUNDING = (
    "speeds are clipped to the range, never dropped; a vehicle's records count until its account is used up"
)
RELATION = NeighbouringRelation.REPLACE_USER_VALUES
RULES = (
    "outside the period, or further ahead of the clock than 5 minutes: left out",
    "late (its step was published already): left out",
    "the same vehicle and instant again: left out, the first stays",
    "more records of one vehicle in a step than records_per_step: the first count",
    "vehicles that cannot pay the whole epsilon, or whose account is used up: left out",
)


@dataclass(frozen=True)
class StreamSpecification:
    """A charged stream. ``sources`` are (name, declaration as JSON, where speeds come from).

    ``budget_changes``: how the store's promise was changed before its charge.
    """

    release_id: str
    created_at: datetime
    publisher: str
    place: str
    grid: Grid
    bound: ContributionBound
    display_unit: SpeedUnit
    statistics: tuple[Statistic, ...]
    interval_level: float
    min_vehicles: int
    publish_counts: bool
    epsilon: PureDP
    budget: Loss
    spent_before: PureDP
    settings: StreamSettings
    horizon: Horizon
    tree: tuple[int, int]
    sources: tuple[tuple[str, str, str], ...]
    budget_changes: tuple[BudgetChange, ...] = ()
    catalogue: CatalogueEntry = NO_CATALOGUE_ENTRY

    @cached_property
    def allowance(self) -> Allowance:
        """A vehicle's account, and the noise that makes it worth ``epsilon``."""
        arity, heights = self.tree
        squares = Statistic.VARIANCE in self.statistics
        return Allowance(
            self.epsilon, self.bound.steps, arity, heights, self.settings.records_per_vehicle, squares
        )

    def empty_stream(self) -> Stream:
        """Return the stream before its first record."""
        return Stream(self.horizon, self.allowance, self.settings.records_per_step, self._enough)

    def stream_from(self, parts: Mapping[str, Mapping[str, Any]]) -> Stream:
        """Return the stream that was stored as ``parts``."""
        if not parts:
            return self.empty_stream()
        cap = self.settings.records_per_step
        return Stream.from_state(
            self.horizon, self.allowance, cap, parts["opened"], parts["kept"], self._enough
        )

    @property
    def _enough(self) -> int | None:
        """How far vehicles of a bin need to be counted."""
        return None if self.publish_counts else self.min_vehicles

    def as_of(self, step: int) -> datetime:
        """Return the end of a step."""
        return _EPOCH + timedelta(microseconds=self.horizon.end_of(step))

    def same_question(self, other: StreamSpecification) -> bool:
        """Return whether both ask for the same; name, time, spending before, budget, context may differ."""
        facts = [replace(each, grid=replace(each.grid, context=())).facts() for each in (self, other)]
        for each in facts:
            for name in (
                "release_id",
                "created_at",
                "spent_before_pico",
                "budget_pico",
                "budget_changes",
                "catalogue",
                "tree",
            ):
                each.pop(name)
        return canonical(facts[0]) == canonical(facts[1])

    def facts(self) -> dict[str, object]:
        """Return the specification as plain JSON values."""
        horizon, settings = self.horizon, self.settings
        return {
            "release_id": self.release_id,
            "created_at": self.created_at.isoformat(),
            "publisher": self.publisher,
            "place": self.place,
            "grid": grid_to_facts(self.grid),
            "bound": bound_to_facts(self.bound),
            "display_unit": self.display_unit.value,
            "statistics": [statistic.value for statistic in self.statistics],
            "interval_level": self.interval_level,
            "min_vehicles": self.min_vehicles,
            "publish_counts": self.publish_counts,
            "epsilon_pico": self.epsilon.pico,
            "budget_pico": self.budget.pico,
            "spent_before_pico": self.spent_before.pico,
            "settings": [
                settings.publish_every,
                settings.lateness,
                settings.records_per_vehicle,
                settings.records_per_step,
            ],
            "horizon": [
                horizon.origin_us,
                horizon.step_us,
                horizon.steps,
                horizon.lateness_us,
                horizon.elements,
            ],
            "tree": list(self.tree),
            "sources": [list(source) for source in self.sources],
            "budget_changes": [as_json(each) for each in self.budget_changes],
            "catalogue": as_json(self.catalogue),
        }

    def to_json(self) -> str:
        """Return the specification as canonical JSON."""
        return canonical(self.facts())

    @classmethod
    def from_json(cls, text: str) -> StreamSpecification:
        """Return the specification that ``to_json`` wrote."""
        facts = json.loads(text)
        arity, heights = facts["tree"]
        epsilon = PureDP(facts["epsilon_pico"])
        return cls(
            release_id=facts["release_id"],
            created_at=datetime.fromisoformat(facts["created_at"]),
            publisher=facts["publisher"],
            place=facts["place"],
            grid=grid_from_facts(facts["grid"]),
            bound=bound_from_facts(facts["bound"]),
            display_unit=SpeedUnit(facts["display_unit"]),
            statistics=tuple(Statistic(each) for each in facts["statistics"]),
            interval_level=facts["interval_level"],
            min_vehicles=facts["min_vehicles"],
            publish_counts=facts["publish_counts"],
            epsilon=epsilon,
            budget=PureDP(facts["budget_pico"]),
            spent_before=PureDP(facts["spent_before_pico"]),
            settings=StreamSettings.model_construct(
                **dict(zip(StreamSettings.model_fields, (epsilon, *facts["settings"]), strict=True))
            ),
            horizon=Horizon(*facts["horizon"]),
            tree=(arity, heights),
            sources=tuple((name, declaration, speed) for name, declaration, speed in facts["sources"]),
            budget_changes=tuple(from_json(BudgetChange, each) for each in facts["budget_changes"]),
            catalogue=from_json(CatalogueEntry, facts.get("catalogue", {})),
        )


def release_of(
    specification: StreamSpecification,
    closed: Closed,
    number: int,
    ledger: LedgerReference,
    data_version: str,
) -> Release:
    """Return the map after a closed step. ``data_version`` names the records that it was made from."""
    place = np.lexsort((closed.slot, closed.cell))
    arrays = {name: getattr(closed, name)[place] for name in ("cell", "slot", "records", "vehicles", "terms")}
    sorted_ = Closed(closed.step, closed.journal, sums=closed.sums[place], **arrays)
    estimates = estimates_of(
        sorted_,
        specification.statistics,
        specification.allowance,
        specification.bound,
        interval_level=specification.interval_level,
        min_vehicles=specification.min_vehicles,
    )
    keep = sorted_.vehicles >= specification.min_vehicles
    status = bin_status(keep, [estimate.status[keep] for estimate in estimates.values()])
    spanned = [
        (estimate.high - estimate.low)[keep] / statistic.largest(float(specification.bound.upper))
        for statistic, estimate in estimates.items()
    ]
    widest = max((float(np.median(share)) for share in spanned if len(share)), default=0.0)
    grid = specification.grid
    return Release(
        id=specification.release_id,
        created_at=specification.created_at,
        grid=grid,
        bound=specification.bound,
        display_unit=specification.display_unit,
        interval_level=specification.interval_level,
        min_vehicles=specification.min_vehicles,
        cell=sorted_.cell.astype(np.uint64),
        slot=sorted_.slot,
        status=status,
        place=place_names(sorted_.cell.astype(np.uint64), grid.context),
        vehicles=sorted_.vehicles if specification.publish_counts else None,
        records=sorted_.records if specification.publish_counts else None,
        estimates=estimates,
        slots=slot_facts(np.unique(sorted_.slot), grid.slot_kind, grid.period, grid.day_parts),
        ledger=ledger,
        disclosure=disclosure(
            identity=stated_identity(
                specification.release_id,
                specification.created_at,
                grid.period.time_zone,
                specification.publisher,
            ),
            coverage=coverage_of(
                grid,
                specification.bound,
                specification.display_unit,
                specification.place,
                RELATION,
                specification.min_vehicles,
                bin_numbers(status),
            ),
            data=Data(
                sources=tuple(
                    source_facts(declaration, name, speed)
                    for name, declaration, speed in specification.sources
                ),
                data_version=data_version,
            ),
            bounds=bounds_of(specification.bound, BOUNDING, None, None),
            charge=Charge(
                RELATION,
                ASSUMPTIONS[RELATION],
                specification.epsilon,
                specification.spent_before,
                BudgetPolicy(specification.budget),
                COMPOSITION,
                specification.budget_changes,
            ),
            noise=Noise(
                unit=specification.bound.unit,
                display_unit=specification.display_unit,
                mechanisms=[
                    _mechanism(statistic, specification, estimate.noise_scale)
                    for statistic, estimate in estimates.items()
                ],
                post_processing=[
                    *(POST_PROCESSING[statistic] for statistic in specification.statistics),
                    ROUNDING,
                ],
                interval_level=specification.interval_level,
                noise=NoiseStated(kind="stream", stream=stream_facts(specification, closed.step, number)),
            ),
            verdict=Verdict(widest >= 1, 1.0, widest, RefusalRule.INTERVAL),
            publish_counts=specification.publish_counts,
            catalogue=specification.catalogue,
        ),
    )


def stream_facts(specification: StreamSpecification, step: int, number: int) -> StreamStated:
    """Return what the manifest says of the stream and of this publication of it."""
    allowance, settings = specification.allowance, specification.settings
    return StreamStated(
        publication=number,
        as_of=rfc3339(specification.as_of(step), specification.grid.period.time_zone),
        publish_every_minutes=settings.publish_every,
        lateness_minutes=settings.lateness,
        steps=specification.horizon.steps,
        records_per_vehicle=settings.records_per_vehicle,
        records_per_step=settings.records_per_step or None,
        nodes_per_vehicle=allowance.touches,
        tree=TreeShape(arity=allowance.arity, heights=allowance.heights),
        value_steps=allowance.value_steps,
        rules=RULES,
    )


def _mechanism(
    statistic: Statistic, specification: StreamSpecification, scale: npt.NDArray[np.float64]
) -> MechanismFacts:
    return MechanismFacts(
        statistic=statistic,
        mechanism=MECHANISM,
        sensitivity="every record changes the sum of each node that holds it by at most the range",
        noise_scale=scale,
        worst_case_bias=rounding_bias(statistic, specification.bound),
        tolerance=None,
        share=None,
        library=f"opendp {OPENDP_VERSION}",
        distribution="sum of discrete Laplace draws, one a node, on integers; noise_scale is that of one",
        citation=CITATION,
        interval_basis=INTERVALS,
    )


def next_digest(before: str, step: int, journal: Mapping[str, npt.NDArray[np.int64]]) -> str:
    """Return the hash that pins the counts up to ``step``: a chain over steps, rows in a fixed order."""
    names = ("cell", "slot", "vehicle", "records", "position")
    rows = np.stack([np.asarray(journal[name], dtype=np.int64) for name in names], axis=1)
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
    return hashlib.sha256(f"{before}\n{step}\n".encode() + rows.astype("<i8").tobytes()).hexdigest()
