"""What a release discloses: its guarantee, mechanism and noise in plain words (``privacy.disclosure``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.metadata import version
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from trafficdp import model
from trafficdp.arrays import FloatArray
from trafficdp.errors import UsageError
from trafficdp.export.files.catalogue import registry_record
from trafficdp.mechanisms.protocol import ASSUMPTIONS, Statement
from trafficdp.privacy import disclosure as privacy_disclosure
from trafficdp.privacy.budget import BudgetChange, BudgetPolicy, weaknesses
from trafficdp.privacy.estimate import REFUSAL_RULES, RefusalRule
from trafficdp.privacy.loss import Loss, LossKind, decimal_text, exact_text
from trafficdp.privacy.release import outward_up

# Plain words about a guarantee, by neighbouring relation.


_VALUES = model.NeighbouringRelation.REPLACE_USER_VALUES
_PRESENCE = model.NeighbouringRelation.ADD_OR_REMOVE_USER
_PRACTICALLY_NEVER = 1e-6

PROTECTED = {
    _VALUES: "How fast any one vehicle drove: all its speeds, in all cells and time slots at once.",
    _PRESENCE: "Any one vehicle as a whole: whether it is in the data, where, when and how fast it drove.",
}

NOT_PROTECTED = {
    _VALUES: (
        "Whether a vehicle is in the data, where and when it drove, and how many records it sent: these "
        "counts are treated as public.",
        "Whether a record carried a usable speed.",
        "What many vehicles have in common: that traffic in a cell was slow is what the map shows.",
        "A person or a company with several vehicles, or a vehicle under several identifiers: each "
        "identifier is protected separately, and the losses add up.",
    ),
    _PRESENCE: (
        "What many vehicles have in common: that traffic in a cell was slow is what the map shows.",
        "A person or a company with several vehicles, or a vehicle under several identifiers: each "
        "identifier is protected separately, and the losses add up.",
    ),
}

BIN_LIST = {
    _VALUES: "public under the counts assumption: every bin that any vehicle visited; "
    "bins not listed had no record",
    _PRESENCE: "declared: every cell of the study area in every slot, whether visited or not",
}

COUNTS_REVEALED = {
    _VALUES: "The list of bins, the withheld bins and the published noise scales reveal how often vehicles "
    "visited a bin, even when the counts themselves are not published.",
    _PRESENCE: "The list of bins and the noise scales were declared in advance and reveal no visit counts.",
}


def guarantee_in_words(
    relation: model.NeighbouringRelation, epsilon: str, *, rho: str | None = None, delta: str = "0"
) -> str:
    """Return what epsilon, or rho and the (epsilon, delta) that follows, means to whoever guesses.

    Of two equally likely accounts of a vehicle, the best guess after the release is right with probability
    at most (e^epsilon + delta) / (1 + e^epsilon): it is (1 + TV) / 2, and TV is at most
    (e^epsilon - 1 + 2 delta) / (e^epsilon + 1). It is rounded up where two digits of its rest end.
    """
    accounts = (
        "how fast one vehicle drove" if relation is _VALUES else "one vehicle: here, or not here at all"
    )
    # 1 - (e^epsilon + delta) / (1 + e^epsilon), which keeps its digits however large epsilon is
    wrong = (1 - float(delta)) / (1 + math.exp(min(float(epsilon), 700.0)))
    right = "practically always"
    if wrong >= _PRACTICALLY_NEVER:
        digits = max(0, 1 - math.floor(math.log10(100 * wrong)))
        share = 100 - math.floor(100 * wrong * 10**digits) / 10**digits
        right = f"{share:.{digits}f} % of the time"
    loss = (
        f"epsilon = {epsilon}"
        if rho is None
        else f"rho = {rho}, and so epsilon = {epsilon} at delta = {delta}"
    )
    return (
        f"Suppose that somebody has two equally likely guesses about {accounts}, and chooses one. Without "
        "this release the choice is right 50 % of the time; with everything that it publishes, at most "
        f"{right} ({loss})."
    )


# The manifest's group ``guarantee``, of either kind of loss, and what is read from it.


CONVERSION = {
    model.NeighbouringRelation.REPLACE_USER_VALUES: "Canonne, Kamath, Steinke 2020, Proposition 12",
    model.NeighbouringRelation.ADD_OR_REMOVE_USER: "Gaussian noise alone: Balle, Wang 2018, Theorem 8, "
    "at mu^2 = 2 rho (1 + 10^-9) and epsilon less 10^-30, because noise is drawn in whole numbers",
}
"""How rho becomes (epsilon, delta), by relation (``privacy.conversion``)."""


def guarantee_group(
    relation: model.NeighbouringRelation, loss: Loss, after: int, budget: BudgetPolicy
) -> privacy_disclosure.Guarantee:
    """Return the manifest's statement of the privacy guarantee of a release with ``loss``.

    ``after`` is the sum of all releases' largest losses, this one included, in 10^-12. In zCDP, ``epsilon``
    is what ``rho`` implies at ``delta``, and all sums and budgets are rho. Raises UsageError for a loss in
    rho without a budget that names delta.
    """
    sums = {"sum_of_maxima": decimal_text(after), "budget_per_vehicle": str(budget.total)}
    if loss.kind is LossKind.PURE:
        return privacy_disclosure.Guarantee(
            definition=privacy_disclosure.PURE,
            epsilon=str(loss),
            in_words=guarantee_in_words(relation, str(loss)),
            **sums,
        )
    epsilon, delta = budget.epsilon(loss), budget.delta
    if delta is None:
        raise UsageError("a loss in rho needs a budget in rho", todo="set [budget] kind, rho and delta")
    return privacy_disclosure.Guarantee(
        definition=privacy_disclosure.CONCENTRATED,
        rho=str(loss),
        epsilon=str(epsilon),
        delta=delta,
        conversion=CONVERSION[relation],
        epsilon_of_sum=str(budget.epsilon(type(loss)(after))),
        in_words=guarantee_in_words(relation, str(epsilon), rho=str(loss), delta=delta),
        **sums,
    )


# How one statistic was made noisy, as the manifest says it.


ROUNDING = "published numbers are rounded to 3 decimals: values to nearest, intervals and scales outward"
LIBRARY = f"opendp {version('opendp')}"


@dataclass(frozen=True)
class Noise:
    """How the numbers of a release were made. ``statements`` say it by statistic, in the bound's unit.

    For a variance that is the unit squared. ``tolerance`` is the weight of a statistic when noise is shared
    out; ``skill`` compares its numbers with one city-wide average. Both may lack statistics.
    """

    request: model.MapRequest
    statements: Mapping[model.Statistic, Statement]
    noise: privacy_disclosure.NoiseStated
    tuning_data: str
    tolerance: Mapping[model.Statistic, float] = field(default_factory=dict)
    skill: Mapping[model.Statistic, privacy_disclosure.SkillStated] = field(default_factory=dict)
    library: str = LIBRARY

    def stated(
        self,
    ) -> tuple[tuple[privacy_disclosure.MechanismStated, ...], tuple[privacy_disclosure.WorstBias, ...]]:
        """Return (what the manifest says of each statistic's mechanism, each statistic's largest bias).

        Both are in display units; a bias is the worst over all data, rounded up.
        """
        request, found, biases = self.request, [], []
        for statistic, statement in self.statements.items():
            both = vars(statement).keys() & privacy_disclosure.MechanismStated.__dataclass_fields__.keys()
            named = {
                "statistic": statistic.column(request.display_unit),
                "unit": statistic.unit(request.display_unit),
            }
            low, high = scales_stated(statistic, statement.noise_scale, request)
            stated: dict[str, Any] = {name: getattr(statement, name) for name in both} | {
                **named,
                "description": statistic.description,
                "noise_scale_min": low,
                "noise_scale_max": high,
                "tolerance": self.tolerance.get(statistic),
                "library": self.library,
                "interval_kind": str(statement.interval_kind),
                "skill": self.skill.get(statistic),
            }
            found.append(privacy_disclosure.MechanismStated(**stated))
            bias = outward_up(np.array(statement.worst_case_bias) * request.factor(statistic))
            biases.append(privacy_disclosure.WorstBias(**named, bias=float(bias)))
        return tuple(found), tuple(biases)


def scales_stated(
    statistic: model.Statistic, noise_scale: FloatArray, request: model.MapRequest
) -> tuple[float | None, float | None]:
    """Return the smallest and largest ``noise_scale`` above 0, in display units, rounded up as published.

    (None, None) where no scale is above 0.
    """
    noisy = noise_scale[noise_scale > 0]
    if not len(noisy):
        return None, None
    # the published table's own rounding, so that both say the same number
    low, high = outward_up(np.array([noisy.min(), noisy.max()]) * request.factor(statistic)).tolist()
    return low, high


# What a release discloses, from its grid, its charge and its noise. The fields: ``privacy.disclosure``.


TUNING_DATA = "none: chosen from public counts"
TUNING_OF_DECLARED = "none: nothing of the data was looked at"
MOSAIC = (
    "Hexagons have different resolutions, chosen from numbers of records alone so that every published "
    "interval of the mean is within the half width asked for. They are a partition by H3 index: a record "
    "counts in the one bin that holds its cell of the finest resolution and its slot. Bins that the budget "
    "did not reach are withheld."
)


@dataclass(frozen=True)
class Charge:
    """What a release costs, and under which promise.

    ``loss`` is the largest privacy loss of any vehicle; ``sum_before`` the sum of these over all releases
    charged before. ``vehicles`` is how many there are, None where this is not public.
    """

    relation: model.NeighbouringRelation
    loss: Loss
    sum_before: Loss
    budget: BudgetPolicy
    composition: str
    budget_changes: tuple[BudgetChange, ...] = ()
    vehicles: int | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether the release is one that would be refused. ``threshold`` and ``value``: see Refusal."""

    forced: bool
    threshold: float
    value: float
    rule: RefusalRule


def disclosure(
    identity: privacy_disclosure.Identity,
    coverage: privacy_disclosure.Coverage,
    data: privacy_disclosure.Data,
    bounds: privacy_disclosure.Bounds,
    charge: Charge,
    noise: Noise,
    verdict: Verdict,
    catalogue: model.CatalogueEntry = model.NO_CATALOGUE_ENTRY,
) -> privacy_disclosure.Disclosure:
    """Return the field groups of the manifest that are fixed at charge time."""
    relation, request = charge.relation, noise.request
    after = charge.sum_before.pico + charge.loss.pico
    statements, (mechanisms, biases) = noise.statements.values(), noise.stated()
    a_year, a_month = (
        None if each is None else decimal_text(each.pico)
        for each in (charge.budget.a_year, charge.budget.a_month)
    )
    groups = privacy_disclosure.Disclosure(
        identity=identity,
        coverage=coverage,
        data=data,
        unit=privacy_disclosure.PrivacyUnit(
            privacy_unit="vehicle",
            identified_by="the feed's vehicle identifier, after normalising case, spaces and hyphens",
            period="all records of a vehicle, in all bins of this release",
            neighbouring_relation=relation.value,
            protected=PROTECTED[relation],
            not_protected=tuple(NOT_PROTECTED[relation]),
        ),
        bounds=bounds if request.publish_counts else replace(bounds, records_per_vehicle_in_a_bin=None),
        guarantee=guarantee_group(relation, charge.loss, after, charge.budget),
        mechanisms=mechanisms,
        accounting=privacy_disclosure.LossAccount(
            composition=charge.composition,
            sum_of_maxima_before=decimal_text(charge.sum_before.pico),
            sum_of_maxima_after=decimal_text(after),
            budget_per_vehicle=decimal_text(charge.budget.total.pico),
            left_for_every_vehicle=decimal_text(max(0, charge.budget.total.pico - after)),
            periodic_budget=privacy_disclosure.PeriodicBudget(
                a_year=a_year, a_month=a_month, time_zone=charge.budget.time_zone
            )
            if charge.budget.periodic
            else None,
            budget_changes=charge.budget_changes,
        ),
        post_processing=(*(each.post_processing for each in statements), ROUNDING),
        uncertainty=privacy_disclosure.Uncertainty(
            interval_level=request.interval_level,
            interval_kind=privacy_disclosure.INTERVAL_KINDS[
                max(
                    (str(each.interval_kind) for each in statements),
                    key=[*privacy_disclosure.INTERVAL_KINDS].index,
                )
            ],
            worst_case_bias=biases,
            simultaneous=False,
        ),
        honesty=privacy_disclosure.Honesty(
            assumptions=tuple(
                privacy_disclosure.StatedAssumption(code=each.code, text=each.text)
                for each in ASSUMPTIONS[relation]
            ),
            tuning_data=noise.tuning_data,
            forced=verdict.forced,
            refusal=privacy_disclosure.Refusal(
                rule=REFUSAL_RULES[verdict.rule],
                threshold=verdict.threshold,
                value=verdict.value,
            ),
            idealised_mechanisms=any(each.idealised for each in statements),
            publish_counts=request.publish_counts,
            counts_revealed=COUNTS_REVEALED[relation],
            weaknesses=weaknesses(charge.budget, charge.vehicles),
        ),
        noise=noise.noise,
        registry={},
        catalogue=catalogue,
    )
    return replace(groups, registry=registry_record(groups))


def bounds_of(
    bound: model.ContributionBound, method: str, bins_per_vehicle: int | None, records_in_a_bin: int | None
) -> privacy_disclosure.Bounds:
    """Return the manifest's statement on how speeds are clipped and how many bins and records a vehicle has.

    None leaves the number of bins, or of records in a bin, unsaid.
    """
    return privacy_disclosure.Bounds(
        clip_low="0",
        clip_high=exact_text(bound.upper),
        clip_unit=bound.unit.label,
        step=exact_text(bound.step),
        bins_per_vehicle=bins_per_vehicle,
        records_per_vehicle_in_a_bin=records_in_a_bin,
        method=method,
    )


def coverage_of(
    grid: model.Grid,
    request: model.MapRequest,
    place: str,
    relation: model.NeighbouringRelation,
    bins: privacy_disclosure.BinNumbers,
) -> privacy_disclosure.Coverage:
    """Return the manifest's statement on area, period, slots and the numbers of ``bins`` by status."""
    kinds = (grid.slot_kind, *(() if grid.mosaic is None else grid.mosaic.longer))
    return privacy_disclosure.Coverage(
        place=place,
        study_area=_outline(grid.area),
        study_area_sha256=grid.area.hash,
        resolution=grid.resolution,
        mosaic=None if grid.mosaic is None else _mosaic(grid, grid.mosaic, request),
        period=grid.period,
        slot_kind=grid.slot_kind.value,
        day_parts=grid.day_parts if model.SlotKind.DAY_PART in kinds else (),
        selection=None if grid.selection.everything else _selection(grid.selection),
        bin_list=BIN_LIST[relation],
        min_vehicles=request.min_vehicles,
        bins=bins,
        zones=None
        if grid.zones is None
        else privacy_disclosure.CityZones(
            file=grid.zones.file, sha256=grid.zones.sha256, zones=len(grid.zones.names)
        ),
        context=tuple(
            privacy_disclosure.PublicLayer(
                kind=layer.kind.value, file=layer.file, sha256=layer.sha256, attribution=layer.attribution
            )
            for layer in grid.context
        ),
    )


def on_city_clocks(moment: datetime, time_zone: str) -> str:
    """Return ``moment`` to the minute, as pages say it: "2026-03-05 10:30 (Asia/Kolkata)"."""
    return f"{moment.astimezone(ZoneInfo(time_zone)):%Y-%m-%d %H:%M} ({time_zone})"


def _outline(area: model.StudyArea) -> privacy_disclosure.Polygon | privacy_disclosure.MultiPolygon:
    geometry = area.to_geojson()
    kind: type[privacy_disclosure.Polygon | privacy_disclosure.MultiPolygon] = (
        privacy_disclosure.Polygon if geometry["type"] == "Polygon" else privacy_disclosure.MultiPolygon
    )
    return model.from_json(kind, geometry)


def _mosaic(
    grid: model.Grid, mosaic: model.Mosaic, request: model.MapRequest
) -> privacy_disclosure.SeveralResolutions:
    return privacy_disclosure.SeveralResolutions(
        resolutions=tuple(mosaic.resolutions),
        published_bins=tuple(
            privacy_disclosure.BinsOfLevel(resolution=resolution, slot_kind=kind.value, bins=bins)
            for (resolution, kind), bins in mosaic.bins_per_level(grid.slot_kind).items()
        ),
        max_half_width=exact_text(mosaic.half_width * request.bound.unit.factor_to(request.display_unit)),
        unit=request.display_unit.label,
        in_words=MOSAIC,
    )


def _selection(selection: model.Selection) -> privacy_disclosure.Selected:
    cells, hours = selection.cells, selection.hours_of_week
    return privacy_disclosure.Selected(
        in_words=selection.in_words(),
        hours_of_week=None if hours is None else tuple(hours),
        places=tuple(
            tuple(
                privacy_disclosure.SelectedPlace(
                    name=place.name, area_sha256=place.area.hash, area=_outline(place.area)
                )
                for place in clause
            )
            for clause in selection.places
        ),
        cells=None if cells is None else tuple(format(cell, "x") for cell in cells),
    )
