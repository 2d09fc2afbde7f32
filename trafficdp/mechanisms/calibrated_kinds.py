"""All kinds of calibrated mechanism, and how each is read back: from its facts or what was published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks
from trafficdp.mechanisms.calibrated import Calibrated, Columns
from trafficdp.mechanisms.clip_user.calibrated import CalibratedSuppression
from trafficdp.mechanisms.consistent.calibrated import CalibratedConsistent
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace
from trafficdp.mechanisms.registry import WHOLE
from trafficdp.mechanisms.separate.calibrated import CalibratedSeparately


class Kind(Protocol):
    """A class of calibrated mechanisms: how they are read back."""

    def from_facts(self, facts: Mapping[str, Any]) -> Calibrated:
        """Return the calibrated mechanism that its ``to_facts`` wrote."""

    def from_published(self, facts: Mapping[str, Any], columns: Columns) -> Calibrated:
        """Return that of the numbered bins from the manifest's facts and the published columns."""


KINDS: dict[str, Kind] = {
    "blocks": CalibratedBlocks,
    "consistent": CalibratedConsistent,
    "laplace": CalibratedLaplace,
    "suppressed": CalibratedSuppression,
    "mechanism": CalibratedSeparately,
    **WHOLE,
}


def calibrated_from_facts(facts: Mapping[str, Any]) -> Calibrated:
    """Return the calibrated mechanism that ``to_facts`` wrote; raise UsageError for an unknown kind."""
    return _kind(facts.get("kind")).from_facts(facts)


def calibrated_from_published(facts: Mapping[str, Any], columns: Columns) -> Calibrated:
    """Return the calibrated mechanism of a published release, from its files alone.

    ``facts`` is the manifest's ``calibrated``.
    Raises UsageError for an unknown kind or columns that are not its own.
    """
    return _kind(facts.get("kind")).from_published(facts, columns)


def _kind(name: object) -> Kind:
    if not isinstance(name, str) or name not in KINDS:
        raise UsageError(
            "unknown kind of calibrated mechanism",
            got=str(name)[:40],
            expected="one of " + ", ".join(sorted(KINDS)),
        )
    return KINDS[name]
