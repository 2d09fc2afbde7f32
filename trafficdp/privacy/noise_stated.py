"""How the noise of a release was drawn, as its manifest says it: with the counts, every loss follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from trafficdp.model import Says
from trafficdp.privacy.coverage import Counted, Moment, Number, SettingName, Text, Texts
from trafficdp.privacy.loss import LossKind

_KINDS = [
    "laplace",
    "mechanism",
    "blocks",
    "suppressed",
    "consistent",
    "partial_pooling",
    "flat",
    "hidden_pooling",
    "vehicle_quantiles",
]


@dataclass(frozen=True, kw_only=True)
class Parents:
    """Means over larger hexagons that were drawn, one in the block of its bins each, and not published.

    ``of``: the parent of every numbered bin in the order of the table, -1 for none. ``half_width``: of a
    parent's noise, in its lattice steps. ``shift``: its exact integer is multiplied by 2 to
    this before noise.
    """

    of: Annotated[
        tuple[Annotated[int, Says({"minimum": -1, "maximum": 10_000_000})], ...],
        Says({"maxItems": 10_000_000}),
    ]
    half_width: Annotated[
        tuple[Annotated[int, Says({"minimum": 1, "maximum": 2**63 - 1})], ...], Says({"maxItems": 5_000_000})
    ]
    shift: Annotated[
        tuple[Annotated[int, Says({"minimum": -62, "maximum": 62})], ...], Says({"maxItems": 5_000_000})
    ]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a mechanism."""

    name: SettingName
    value: SettingName | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Tree:
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
    tree: Tree
    value_steps: Counted
    rules: Texts


@dataclass(frozen=True, kw_only=True)
class NoiseStated:
    """How the noise was drawn: with the noise columns and the counts, every vehicle's loss follows.

    ``rule`` is the number of the rule by which pairs of vehicle and bin are left out, from counts alone, and
    ``epsilon_per_bin`` the epsilon a bin at which it does (0: nowhere). ``mechanisms`` and ``settings`` are
    those of every statistic. A map of one piece has its ``statistics`` and the ``pico`` 10^-12 of
    ``loss_kind`` that it is given; one of which nothing is public says whether slots are measured ``apart``,
    and what ``counts`` have of the total, per cent.
    """

    kind: Annotated[str, Says({"enum": [*_KINDS, "stream"]})]
    rule: Counted | None = None
    epsilon_per_bin: Annotated[float | None, Says({"minimum": 0})] = None
    parents: Parents | None = None
    mechanisms: Mapping[Annotated[str, Says({"enum": ["mean", "variance", "vehicle_mean"]})], Text] | None = (
        None
    )
    settings: (
        Mapping[
            Annotated[str, Says({"enum": ["mean", "variance", "vehicle_mean"]})],
            Annotated[tuple[Setting, ...], Says({"maxItems": 32})],
        ]
        | None
    ) = None
    loss_kind: Annotated[str | None, Says({"enum": [each.value for each in LossKind]})] = None
    pico: Counted | None = None
    statistics: tuple[Text, ...] | None = None
    apart: bool | None = None
    counts: Number | None = None
    stream: StreamStated | None = None
