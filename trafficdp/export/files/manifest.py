"""The manifest: the disclosure fixed at charge time, the place in the ledger, and the files.

Its shape is ``schemas/manifest.schema.json`` (JSON Schema 2020-12); what a schema cannot say - that
sums add up and that it belongs to the release - is checked here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.resources import files as package_files
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match

from trafficdp.errors import DataError
from trafficdp.export.files.columns import FileFacts, published_statistics
from trafficdp.export.files.disclosure import bin_numbers, rfc3339
from trafficdp.export.files.guarantee import conversion_holds, loss_text
from trafficdp.privacy.release import Release

VERSION = 1


def build_manifest(release: Release, files: Mapping[str, FileFacts]) -> dict[str, Any]:
    """Return the manifest of ``release`` with ``files``, validated.

    Raises DataError when the disclosure is incomplete or belongs to another release.
    """
    document: dict[str, Any] = json.loads(json.dumps(dict(release.disclosure), allow_nan=False))
    document["manifest_version"] = VERSION
    accounting = document.get("accounting")
    if isinstance(accounting, dict):
        # known only after the entry that holds the disclosure was chained
        accounting["ledger_sequence"] = release.ledger.sequence
        accounting["head_hash"] = release.ledger.head_hash
    document["files"] = [asdict(files[name]) for name in sorted(files)]
    for listed in document["files"]:
        listed["columns"] = list(listed["columns"])
    validate_manifest(document)
    _check_release(document, release)
    return document


def manifest_bytes(document: Mapping[str, object]) -> bytes:
    """Return the one text of a manifest, in UTF-8."""
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


@cache
def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema that every manifest meets."""
    text = package_files("trafficdp.export").joinpath("schemas/manifest.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def validate_manifest(document: object) -> None:
    """Raise DataError, naming the JSON path, unless ``document`` is a complete, consistent manifest."""
    validator = jsonschema.Draft202012Validator(manifest_schema())
    error = best_match(validator.iter_errors(document))
    if error is not None:
        reason = error.message if len(error.message) <= 200 else f"does not meet {error.validator!r}"
        raise DataError(
            f"the manifest is not complete at {error.json_path}",
            got=reason,
            expected="what manifest.schema.json asks for",
        )
    if not isinstance(document, Mapping):
        return
    _check_sums(document)


def _check_sums(document: Mapping[str, Any]) -> None:
    guarantee, accounting = document["guarantee"], document["accounting"]
    numbers = document["coverage"]["bins"]
    try:
        before, after = (Decimal(accounting[f"sum_of_maxima_{when}"]) for when in ("before", "after"))
        budget, spent = Decimal(accounting["budget_per_vehicle"]), Decimal(loss_text(guarantee))
        left = Decimal(accounting["left_for_every_vehicle"])
    except InvalidOperation as error:
        raise DataError("the manifest holds a loss that is not a number") from error
    wrong = {
        "$.accounting.sum_of_maxima_after": after != before + spent,
        "$.accounting.left_for_every_vehicle": left != max(Decimal(0), budget - after),
        "$.guarantee.sum_of_maxima": Decimal(guarantee["sum_of_maxima"]) != after,
        "$.guarantee.budget_per_vehicle": Decimal(guarantee["budget_per_vehicle"]) != budget,
        "$.guarantee.epsilon": not conversion_holds(guarantee),
        "$.coverage.bins.total": numbers["total"] != sum(numbers.values()) - numbers["total"],
        "$.honesty.idealised_mechanisms": document["honesty"]["idealised_mechanisms"]
        != any(each.get("idealised", False) for each in document["mechanisms"]),
        "$.files": len({each["name"] for each in document["files"]}) != len(document["files"]),
    }
    for path, is_wrong in wrong.items():
        if is_wrong:
            raise DataError(
                f"the manifest contradicts itself at {path}", expected="sums that add up and names used once"
            )


def _check_release(document: Mapping[str, Any], release: Release) -> None:
    coverage = document["coverage"]
    same = {
        "$.identity.release": document["identity"]["release"] == release.id,
        "$.identity.created_at": document["identity"]["created_at"] == rfc3339(release.created_at),
        "$.coverage.study_area_sha256": coverage["study_area_sha256"] == release.grid.area.hash,
        "$.coverage.resolution": coverage["resolution"] == release.grid.resolution,
        "$.coverage.slot_kind": coverage["slot_kind"] == release.grid.slot_kind.value,
        "$.coverage.min_vehicles": coverage["min_vehicles"] == release.min_vehicles,
        "$.coverage.bins": coverage["bins"] == bin_numbers(release.status),
        "$.uncertainty.interval_level": document["uncertainty"]["interval_level"] == release.interval_level,
        "$.honesty.publish_counts": document["honesty"]["publish_counts"] == (release.vehicles is not None),
        "$.mechanisms": [each["statistic"] for each in document["mechanisms"]]
        == [each.column(release.display_unit) for each in published_statistics(release)],
    }
    for path, agrees in same.items():
        if not agrees:
            raise DataError(
                f"the disclosure does not belong to this release: it differs at {path}",
                expected="the disclosure that was fixed when this release was charged",
            )
