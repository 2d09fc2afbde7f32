"""The manifest: the disclosure fixed at charge time, the place in the ledger, and the files.

Its shape is ``schemas/manifest.schema.json`` (JSON Schema 2020-12); what a schema cannot say - that
sums add up and that it belongs to the release - is checked here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from functools import cache
from importlib.resources import files as package_files
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from trafficdp.errors import DataError
from trafficdp.export.files import catalogue, disclosure, tables
from trafficdp.model import Counted, NeighbouringRelation, Schema, as_json, from_json, rfc3339, zone_of
from trafficdp.privacy.budget import BudgetPolicy, weaknesses
from trafficdp.privacy.conversion import rho_to_approx
from trafficdp.privacy.disclosure import PURE, BinNumbers, Disclosure, LossAccount, Sha256
from trafficdp.privacy.loss import ZCDP, PureDP
from trafficdp.privacy.release import Release

if TYPE_CHECKING:
    import jsonschema

SchemaNode: TypeAlias = Any
VERSION = 1
SCHEMA = package_files("trafficdp.export").joinpath("schemas/manifest.schema.json")
"""The JSON Schema that every manifest meets."""
MANY = 10**301
"""More vehicles than one divided by any delta."""


@dataclass(frozen=True, kw_only=True)
class LedgerAccounting(LossAccount):
    """The accounting with its place in the ledger, known only after the charge was chained."""

    ledger_sequence: Counted
    head_hash: Sha256


@dataclass(frozen=True, kw_only=True)
class Manifest(Disclosure):
    """What is said with a private map: the disclosure, the place in the ledger, and the files."""

    accounting: LedgerAccounting
    manifest_version: Annotated[int, Schema({"const": VERSION})]
    files: Annotated[tuple[catalogue.FileFacts, ...], Schema({"minItems": 1})]


def build_manifest(release: Release, files: Mapping[str, catalogue.FileFacts]) -> dict[str, Any]:
    """Return the manifest of ``release`` with ``files``, validated, as plain JSON values.

    Raises DataError when the disclosure belongs to another release.
    """
    groups = {field.name: getattr(release.disclosure, field.name) for field in fields(Disclosure)}
    manifest = Manifest(
        **{
            **groups,
            "accounting": LedgerAccounting(
                **{field.name: getattr(groups["accounting"], field.name) for field in fields(LossAccount)},
                ledger_sequence=release.ledger.sequence,
                head_hash=release.ledger.head_hash,
            ),
            "manifest_version": VERSION,
            "files": tuple(files[name] for name in sorted(files)),
        }
    )
    document: dict[str, Any] = as_json(manifest)
    validate_manifest(document)
    coverage = manifest.coverage
    same = {
        "$.identity.release": manifest.identity.release == release.id,
        "$.identity.created_at": manifest.identity.created_at
        == rfc3339(release.created_at, zone_of(release.grid.period.time_zone)),
        "$.coverage.study_area_sha256": coverage.study_area_sha256 == release.grid.area.hash,
        "$.coverage.resolution": coverage.resolution == release.grid.resolution,
        "$.coverage.zones": (coverage.zones and coverage.zones.sha256)
        == (release.grid.zones and release.grid.zones.sha256),
        "$.coverage.slot_kind": coverage.slot_kind == release.grid.slot_kind.value,
        "$.coverage.min_vehicles": coverage.min_vehicles == release.request.min_vehicles,
        "$.coverage.bins": coverage.bins == BinNumbers.of(release.status),
        "$.uncertainty.interval_level": manifest.uncertainty.interval_level == release.request.interval_level,
        "$.honesty.publish_counts": manifest.honesty.publish_counts == (release.vehicles is not None),
        "$.mechanisms": [each.statistic for each in manifest.mechanisms]
        == [each.column(release.request.display_unit) for each in tables.published_statistics(release)],
    }
    for path, agrees in same.items():
        if not agrees:
            raise DataError(
                f"the disclosure does not belong to this release: it differs at {path}",
                expected="the disclosure that was fixed when this release was charged",
            )
    return document


@cache
def _validator() -> jsonschema.Draft202012Validator:
    import jsonschema

    schema = json.loads(SCHEMA.read_text("utf-8"))
    return jsonschema.Draft202012Validator(_spelt_out(schema, schema["$defs"]))


def _spelt_out(schema: SchemaNode, named: Mapping[str, SchemaNode]) -> SchemaNode:
    """Return ``schema`` with what its references name in their place: to follow each takes as long again."""
    if isinstance(schema, list):
        return [_spelt_out(each, named) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.keys() == {"$ref"}:
        return _spelt_out(named[schema["$ref"].removeprefix("#/$defs/")], named)
    return {key: _spelt_out(each, named) for key, each in schema.items() if key != "$defs"}


def validate_manifest(document: object) -> Manifest:
    """Return the manifest; raise DataError, naming the JSON path, unless complete and consistent."""
    from jsonschema.exceptions import best_match

    error = best_match(_validator().iter_errors(document))
    if error is not None:
        reason = error.message if len(error.message) <= 200 else f"does not meet {error.validator!r}"
        raise DataError(
            f"the manifest is not complete at {error.json_path}",
            got=reason,
            expected="what manifest.schema.json asks for",
        )
    manifest = from_json(Manifest, document)
    guarantee, accounting, bins = manifest.guarantee, manifest.accounting, manifest.coverage.bins
    relation = NeighbouringRelation(manifest.unit.neighbouring_relation)
    # the guarantee is pure, or both epsilons are what the relation's conversion gives
    stated = (guarantee.rho, guarantee.delta, guarantee.epsilon_of_sum, guarantee.conversion)
    if guarantee.definition == PURE:
        converted = stated == (None,) * 4
    else:
        rho, delta, of_sum, conversion = stated
        converted = (
            rho is not None
            and delta is not None
            and of_sum is not None
            and conversion == disclosure.CONVERSION[relation]
            and all(
                rho_to_approx(ZCDP.at_least(Fraction(loss)), delta, relation).epsilon == Fraction(epsilon)
                for loss, epsilon in ((rho, guarantee.epsilon), (guarantee.sum_of_maxima, of_sum))
            )
        )
    # which weaknesses may be stated depends on the number of vehicles, which is not
    loss_of = PureDP if guarantee.delta is None else ZCDP
    policy = BudgetPolicy(
        loss_of.at_least(Fraction(guarantee.budget_per_vehicle)), delta=guarantee.delta, relation=relation
    )
    before, after = Decimal(accounting.sum_of_maxima_before), Decimal(accounting.sum_of_maxima_after)
    budget, left = Decimal(accounting.budget_per_vehicle), Decimal(accounting.left_for_every_vehicle)
    wrong = {
        "$.accounting.sum_of_maxima_after": after != before + Decimal(guarantee.loss),
        "$.accounting.left_for_every_vehicle": left != max(Decimal(0), budget - after),
        "$.guarantee.sum_of_maxima": Decimal(guarantee.sum_of_maxima) != after,
        "$.guarantee.budget_per_vehicle": Decimal(guarantee.budget_per_vehicle) != budget,
        "$.guarantee.epsilon": not converted,
        "$.coverage.bins.total": bins.total
        != bins.released + bins.constant + bins.withheld + bins.uninformative,
        "$.honesty.idealised_mechanisms": manifest.honesty.idealised_mechanisms
        != any(each.idealised for each in manifest.mechanisms),
        "$.honesty.weaknesses": manifest.honesty.weaknesses
        not in (weaknesses(policy), weaknesses(policy, MANY)),
        "$.files": len({each.name for each in manifest.files}) != len(manifest.files),
        "$.registry": manifest.registry != catalogue.registry_record(manifest),
    }
    for path, is_wrong in wrong.items():
        if is_wrong:
            raise DataError(
                f"the manifest contradicts itself at {path}", expected="sums that add up and names used once"
            )
    return manifest
