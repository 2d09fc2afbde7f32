"""What a release and a stream state alike: who made it, of which sources, and how numbers are rounded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from typing import Any

from trafficdp.export.files.disclosure import rfc3339
from trafficdp.ingest.clean import RULES
from trafficdp.model import SpeedUnit
from trafficdp.privacy.disclosure import DeclaredUnit, Identity, RecordSource, Software

ROUNDING = "published numbers are rounded to 3 decimals: values to nearest, intervals and scales outward"


def stated_identity(
    release_id: str, created_at: datetime, time_zone: str, publisher: str, question: str | None = None
) -> Identity:
    """Return which release it is, and that this version of trafficdp made it."""
    return Identity(
        release=release_id,
        publisher=publisher,
        software=Software(name="trafficdp", version=version("trafficdp")),
        created_at=rfc3339(created_at, time_zone),
        supersedes=None,
        question=question,
    )


def source_facts(declaration: str, name: str, speed: str) -> RecordSource:
    """Return what the manifest says of a source; ``declaration`` is the vault's JSON of it.

    ``speed``: see RecordSource.
    """
    facts: Mapping[str, Any] = json.loads(declaration)
    rules = [f"rejected when {text}" for text in RULES.values()]
    return RecordSource(
        name=name,
        format=str(facts["format"]),
        units=tuple(
            DeclaredUnit(unit=SpeedUnit(each["unit"]).label, first=each["first"], last=each["last"])
            for each in facts["units"]
        ),
        cleaning=(
            *rules,
            "the same vehicle and instant in a later file is left out",
            "speeds are never a reason to drop a row",
        ),
        speed=speed,
    )
