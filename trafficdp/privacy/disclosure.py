"""What is said with a release and fixed when its charge is committed, field by field.

Where and when it holds (``Coverage``), how its noise was drawn (``NoiseStated``: with the counts, every loss
follows), and all else (``Disclosure``). Models: Census 2020 noisy measurements, Google mobility, Wikimedia;
NIST SP 800-226; the OpenDP deployments registry. Nothing here depends on a value: all of it is known before
the noise is drawn. JSON and back by ``model.json_codec``; ``Schema`` is what the JSON Schema says beyond the
type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from trafficdp.model.context import NO_CATALOGUE_ENTRY, CatalogueEntry, ContextKind
from trafficdp.model.counts import NeighbouringRelation
from trafficdp.model.grid import DayPart, Period, SlotKind
from trafficdp.model.json_codec import Counted, Moment, Schema, Text
from trafficdp.model.speed import OF_MAPS, Knowledge, SpeedUnit
from trafficdp.privacy import budget, estimate, loss

_LABELS = [unit.label for unit in SpeedUnit]
# what the JSON Schema says of a text or number that is used in several places
Sha256 = Annotated[str, Schema({"pattern": "^[0-9a-f]{64}$"})]
Loss = Annotated[
    str,
    Schema(
        {"pattern": r"^(0|[1-9][0-9]*)(\.[0-9]{1,12})?$", "description": "decimal number, exact to 1e-12"}
    ),
]
_EXACT = r"^(0|[1-9][0-9]*)((\.[0-9]{1,12})|(/[1-9][0-9]*))?$"
Exact = Annotated[str, Schema({"pattern": _EXACT, "description": "decimal number or ratio, exact"})]
Day = Annotated[str, Schema({"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"})]
Slots = Annotated[str, Schema({"enum": [kind.value for kind in SlotKind]})]
UnitLabel = Annotated[str, Schema({"enum": _LABELS})]
StatisticUnit = Annotated[str, Schema({"enum": [*_LABELS, *(f"({label})²" for label in _LABELS)]})]
Column = Annotated[
    str,
    Schema(
        {
            "pattern": r"^speed_(mean|vehicle_(mean|median|p[0-9]{2}))_(ms|kmh|mph)$"
            r"|^speed_variance_(ms|kmh|mph)2$"
        }
    ),
]
Number = Annotated[int, Schema({"minimum": 0})]
Resolution = Annotated[int, Schema({"minimum": 0, "maximum": 15})]
Positive = Annotated[float, Schema({"exclusiveMinimum": 0})]
NotNegative = Annotated[float, Schema({"minimum": 0})]
Share = Annotated[float, Schema({"minimum": 0, "maximum": 1})]
Ring = Annotated[tuple[tuple[float, float], ...], Schema({"minItems": 4})]
Rings = Annotated[tuple[Ring, ...], Schema({"minItems": 1})]
Texts = Annotated[tuple[Text, ...], Schema({"minItems": 1})]
MapStatistic = Annotated[str, Schema({"enum": [each.value for each in OF_MAPS]})]
SettingName = Annotated[str, Schema({"pattern": "^[a-z][a-z0-9_]{0,63}$"})]


@dataclass(frozen=True, kw_only=True)
class Polygon:
    """A GeoJSON polygon, (longitude, latitude)."""

    type: Annotated[str, Schema({"const": "Polygon"})]
    coordinates: Rings


@dataclass(frozen=True, kw_only=True)
class MultiPolygon:
    """Several GeoJSON polygons."""

    type: Annotated[str, Schema({"const": "MultiPolygon"})]
    coordinates: Annotated[tuple[Rings, ...], Schema({"minItems": 1})]


@dataclass(frozen=True, kw_only=True)
class SelectedPlace:
    """A place of a selection."""

    name: Text
    area_sha256: Sha256
    area: Polygon | MultiPolygon


@dataclass(frozen=True, kw_only=True)
class Selected:
    """What of area and period counts at all, when it is not everything."""

    in_words: Text
    hours_of_week: Annotated[
        tuple[Annotated[int, Schema({"minimum": 0, "maximum": 167})], ...] | None,
        Schema({"minItems": 1, "uniqueItems": True}),
    ]
    places: tuple[Annotated[tuple[SelectedPlace, ...], Schema({"minItems": 1})], ...]
    cells: Annotated[
        tuple[Annotated[str, Schema({"pattern": "^[0-9a-f]{1,16}$"})], ...] | None,
        Schema({"minItems": 1, "uniqueItems": True}),
    ]


@dataclass(frozen=True, kw_only=True)
class BinsOfLevel:
    """How many bins of one resolution and slot kind are published."""

    resolution: Resolution
    slot_kind: Slots
    bins: Number


@dataclass(frozen=True, kw_only=True)
class SeveralResolutions:
    """The resolutions of a map of several, how many bins of each are published, and what was asked."""

    resolutions: Annotated[tuple[Resolution, ...], Schema({"minItems": 1, "uniqueItems": True})]
    published_bins: Annotated[tuple[BinsOfLevel, ...], Schema({"minItems": 1})]
    max_half_width: Text
    unit: Text
    in_words: Text


@dataclass(frozen=True, kw_only=True)
class PublicLayer:
    """A file of a public map that is drawn around the numbers and names hexagons."""

    kind: Annotated[str, Schema({"enum": [kind.value for kind in ContextKind]})]
    file: Text
    sha256: Sha256
    attribution: Text


@dataclass(frozen=True, kw_only=True)
class CityZones:
    """The file whose polygons the map is cut into; ``zones`` says how many there are."""

    file: Text
    sha256: Sha256
    zones: Number


@dataclass(frozen=True, kw_only=True)
class BinNumbers:
    """How many bins there are in all and of each status."""

    total: Number
    released: Number
    constant: Number
    withheld: Number
    uninformative: Number

    @classmethod
    def of(cls, status: npt.NDArray[np.object_]) -> BinNumbers:
        """Return how many bins have each BinStatus in ``status``, and how many there are in all."""
        numbers = {each.value: int(np.sum(status == each.value)) for each in estimate.BinStatus}
        return cls(total=len(status), **numbers)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Where and when."""

    place: Text
    study_area: Polygon | MultiPolygon
    study_area_sha256: Sha256
    resolution: Resolution | None
    period: Period
    slot_kind: Slots
    day_parts: tuple[DayPart, ...]
    bin_list: Text
    min_vehicles: Number
    bins: BinNumbers
    selection: Selected | None = None
    mosaic: SeveralResolutions | None = None
    context: tuple[PublicLayer, ...] = ()
    zones: CityZones | None = None


_KINDS = [
    "laplace",
    "mechanism",
    "blocks",
    "suppressed",
    "partial_pooling",
    "flat",
    "add_remove_pooling",
    "vehicle_quantiles",
]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a mechanism."""

    name: SettingName
    value: SettingName | float | bool | None


@dataclass(frozen=True, kw_only=True)
class TreeShape:
    """The shape of a stream's tree of sums."""

    arity: Counted
    heights: Counted


@dataclass(frozen=True, kw_only=True)
class StreamStated:
    """A publication of a stream: one epsilon covers all of them."""

    publication: Counted
    as_of: Moment
    publish_every_minutes: Counted
    lateness_minutes: Number
    steps: Counted
    records_per_vehicle: Counted
    records_per_step: Counted | None
    nodes_per_vehicle: Counted
    tree: TreeShape
    value_steps: Counted
    rules: Texts


@dataclass(frozen=True, kw_only=True)
class NoiseStated:
    """How the noise was drawn: with the noise columns and the counts, every vehicle's loss follows.

    ``rule`` is the number of the rule by which pairs of vehicle and bin are left out, from counts alone, and
    ``epsilon_per_bin`` the epsilon a bin at which it does (0: nowhere). ``mechanisms`` and ``settings`` are
    those of every statistic. A map of one piece has its ``statistics`` and the ``pico`` 10^-12 of
    ``loss_kind`` that it is given; one of which nothing is public says whether slots are measured
    ``per_slot``, and what counts have of the total (``counts_percent``). ``known``: public sources of speeds
    that it started from.
    """

    kind: Annotated[str, Schema({"enum": [*_KINDS, "stream"]})]
    rule: Counted | None = None
    epsilon_per_bin: Annotated[float | None, Schema({"minimum": 0})] = None
    mechanisms: Mapping[MapStatistic, Text] | None = None
    settings: Mapping[MapStatistic, Annotated[tuple[Setting, ...], Schema({"maxItems": 32})]] | None = None
    loss_kind: Annotated[str | None, Schema({"enum": [each.value for each in loss.LossKind]})] = None
    pico: Counted | None = None
    statistics: tuple[Text, ...] | None = None
    per_slot: bool | None = None
    counts_percent: Number | None = None
    known: tuple[Knowledge, ...] | None = None
    stream: StreamStated | None = None


PURE = "pure epsilon-differential privacy, user level"
CONCENTRATED = "rho-zero-concentrated differential privacy (zCDP), user level"
INTERVAL_KINDS = {
    "guaranteed": "per bin, two-sided, of the sample statistic of the clipped speeds",
    "ranks": "per bin, two-sided: between which vehicles' own mean speeds, by rank, the number lies",
    "calibrated": "calibrated: tested by trials (see calibration), not guaranteed",
}


@dataclass(frozen=True, kw_only=True)
class Software:
    """What made the release; ``commit`` only where it is known."""

    name: Text
    version: Text
    commit: Annotated[str | None, Schema({"pattern": "^[0-9a-f]{7,64}$"})] = None


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which release it is; ``question`` is the SQL that it answers, where it does."""

    release: Text
    publisher: Text
    software: Software
    created_at: Moment
    supersedes: Text | None
    question: Text | None = None


@dataclass(frozen=True, kw_only=True)
class DeclaredUnit:
    """The unit of a source's speeds from ``first`` to ``last`` (None: without end)."""

    unit: UnitLabel
    first: Day | None
    last: Day | None


@dataclass(frozen=True, kw_only=True)
class RecordSource:
    """One source of records: declared units, cleaning rules in words, and where its speeds come from.

    ``speed`` is "reported" (by the device), "derived" (from the vehicle's neighbouring records) or "mixed".
    """

    name: Text
    format: Text
    units: Annotated[tuple[DeclaredUnit, ...], Schema({"minItems": 1})]
    cleaning: Texts
    speed: Annotated[str, Schema({"enum": ["reported", "derived", "mixed"]})]


@dataclass(frozen=True, kw_only=True)
class Data:
    """What the release was made from; ``data_version`` is the random name of the records."""

    sources: Annotated[tuple[RecordSource, ...], Schema({"minItems": 1})]
    data_version: Text


@dataclass(frozen=True, kw_only=True)
class PrivacyUnit:
    """Who is protected, and from what."""

    privacy_unit: Annotated[str, Schema({"const": "vehicle"})]
    identified_by: Text
    period: Text
    neighbouring_relation: Annotated[str, Schema({"enum": [each.value for each in NeighbouringRelation]})]
    protected: Text
    not_protected: Texts


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How values and contributions are bounded; None says nothing."""

    clip_low: Annotated[str, Schema({"const": "0"})]
    clip_high: Exact
    clip_unit: UnitLabel
    step: Exact
    bins_per_vehicle: Counted | None
    records_per_vehicle_in_a_bin: Counted | None
    method: Text


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """Pure: epsilon adds up. zCDP: rho adds up, and sums and budgets are rho.

    ``epsilon`` is then what rho implies at delta by the conversion. ``rho``, ``delta``, ``conversion`` and
    ``epsilon_of_sum`` are stated in zCDP alone.
    """

    definition: Annotated[str, Schema({"enum": [PURE, CONCENTRATED]})]
    epsilon: Loss
    sum_of_maxima: Loss
    budget_per_vehicle: Loss
    in_words: Text
    rho: Loss | None = None
    delta: Annotated[
        str | None,
        Schema(
            {
                "pattern": "^[0-9.]+([eE]-?[0-9]+)?$",
                "description": "decimal number below 1, perhaps with an exponent",
            }
        ),
    ] = None
    conversion: Text | None = None
    epsilon_of_sum: Loss | None = None

    @property
    def loss(self) -> str:
        """The loss that adds up over releases: epsilon, or rho where the guarantee is in rho."""
        return self.epsilon if self.rho is None else self.rho

    @property
    def quantity(self) -> str:
        """The name of the loss that adds up: "epsilon", or "rho" where the guarantee is in rho."""
        return "epsilon" if self.rho is None else "rho"

    @property
    def in_short(self) -> str:
        """The guarantee in short: "epsilon 4", or rho with the (epsilon, delta) that follows from it."""
        if self.rho is None:
            return f"epsilon {self.epsilon}"
        return f"rho {self.rho} (epsilon {self.epsilon} at delta {self.delta})"

    @property
    def concentrated(self) -> dict[str, str]:
        """Rho and the delta at which epsilon follows from it, by name.

        Empty where the guarantee is pure epsilon.
        """
        return {} if self.rho is None or self.delta is None else {"rho": self.rho, "delta": self.delta}


@dataclass(frozen=True, kw_only=True)
class SkillStated:
    """How much smaller errors are than those of one city-wide average, in simulated cities.

    ``expected_error``, ``flat_error``: mean absolute errors of this map and of that number, in display units.
    ``skill``: 1 - their ratio, reached in 19 of 20 draws or on average; ``chance_worse``: share of draws.
    """

    expected_error: NotNegative
    flat_error: NotNegative
    skill: Annotated[float, Schema({"maximum": 1})]
    skill_19_in_20: Annotated[float, Schema({"maximum": 1})]
    chance_worse: Share
    in_words: Text


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """On what intervals without a theorem were tuned, and which shares of places they held elsewhere."""

    tuned_on: Text
    level: Share
    held_on_other_days: Share
    held_on_worst_map: Share | None
    held_in_other_city: Share | None
    in_words: Text


@dataclass(frozen=True, kw_only=True)
class MechanismStated:
    """How one statistic was made noisy, in display units.

    ``unenforced`` is stated where what one vehicle moves is only claimed, by the theorem that it names;
    ``calibration`` where no theorem stands behind intervals.
    """

    statistic: Column
    description: Text
    unit: StatisticUnit
    mechanism: Text
    sensitivity: Text
    distribution: Text
    noise_scale_min: Positive | None
    noise_scale_max: Positive | None
    sampler: Text
    library: Text
    tolerance: Positive | None
    share: Annotated[float | None, Schema({"minimum": 0, "maximum": 1})]
    citation: Text | None
    interval_basis: Text
    interval_kind: Annotated[str, Schema({"enum": list(INTERVAL_KINDS)})]
    idealised: bool
    unenforced: Text | None = None
    calibration: Calibration | None = None
    skill: SkillStated | None = None

    @property
    def claim(self) -> str:
        """A phrase that names the theorem on which an unenforced privacy loss rests.

        Empty where all is enforced.
        """
        return f"; unenforced: {self.unenforced}" if self.unenforced else ""


@dataclass(frozen=True, kw_only=True)
class PeriodicBudget:
    """Further ceilings on what a vehicle may lose by the releases of one calendar year or month."""

    a_year: Loss | None
    a_month: Loss | None
    time_zone: Text


@dataclass(frozen=True, kw_only=True)
class LossAccount:
    """The sum of losses before and after; ``periodic_budget`` where not the total alone counts.

    ``budget_changes``: how the store's promise was changed before this release, in order.
    """

    composition: Text
    sum_of_maxima_before: Loss
    sum_of_maxima_after: Loss
    budget_per_vehicle: Loss
    left_for_every_vehicle: Loss
    periodic_budget: PeriodicBudget | None = None
    budget_changes: tuple[budget.BudgetChange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WorstBias:
    """The largest bias of a statistic over all data, rounded up."""

    statistic: Column
    unit: StatisticUnit
    bias: NotNegative


@dataclass(frozen=True, kw_only=True)
class Uncertainty:
    """What the intervals hold."""

    interval_level: Annotated[float, Schema({"exclusiveMinimum": 0, "exclusiveMaximum": 1})]
    interval_kind: Annotated[str, Schema({"enum": list(INTERVAL_KINDS.values())})]
    worst_case_bias: Annotated[tuple[WorstBias, ...], Schema({"minItems": 1})]
    simultaneous: Annotated[bool, Schema({"const": False})]


@dataclass(frozen=True, kw_only=True)
class StatedAssumption:
    """An assumption that the guarantee rests on."""

    code: Text
    text: Text


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The rule of refusal: threshold and the expected error, both as shares of what the rule names."""

    rule: Text
    threshold: Annotated[float, Schema({"exclusiveMinimum": 0, "maximum": 1})]
    value: NotNegative


@dataclass(frozen=True, kw_only=True)
class Honesty:
    """What a reader must know before trusting.

    ``forced`` means released although it would be refused; ``weaknesses`` say why the promise is weak.
    """

    assumptions: Annotated[tuple[StatedAssumption, ...], Schema({"minItems": 1})]
    tuning_data: Text
    forced: bool
    refusal: Refusal
    idealised_mechanisms: bool
    publish_counts: bool
    counts_revealed: Text
    weaknesses: tuple[Text, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Disclosure:
    """The field groups of a manifest that are fixed at charge time; the manifest adds ledger and files."""

    identity: Identity
    coverage: Coverage
    data: Data
    unit: PrivacyUnit
    bounds: Bounds
    guarantee: Guarantee
    mechanisms: Annotated[tuple[MechanismStated, ...], Schema({"minItems": 1})]
    accounting: LossAccount
    post_processing: Texts
    uncertainty: Uncertainty
    honesty: Honesty
    noise: NoiseStated
    registry: Annotated[
        Mapping[str, Any],
        Schema({"description": "What follows for the deployments registry: registry.schema.json."}),
    ]
    catalogue: CatalogueEntry = NO_CATALOGUE_ENTRY
