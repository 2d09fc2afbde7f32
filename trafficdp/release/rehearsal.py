"""What a rehearsal reads in place of records: nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from trafficdp.errors import UsageError
from trafficdp.model import NeighbouringRelation
from trafficdp.sensitive.values import Contributions, Samples, SensitiveInputs


def silenced(contributions: Contributions, relation: NeighbouringRelation) -> SensitiveInputs:
    """Return speeds of 0 for the same counts.

    Where nothing about a vehicle is public, who was where is not read either: one record stands for all.
    Steps, noise and map are as large as they will be, for these are public.
    """
    silent = SensitiveInputs(contributions, unread).silenced()
    if not relation.hides_presence:
        return silent
    counts = contributions.counts
    one = Contributions.of_anyone(counts.cell[:1], counts.slot[:1], contributions.bound)
    return replace(silent, recorded=lambda: one)


def none_there() -> Samples:
    """Raise UsageError: a store of sums has no single speed."""
    raise UsageError(
        "this store holds sums from a cluster, and the mechanism needs every single speed",
        todo='choose another mechanism, such as "baseline", or ingest the files into a store of records',
    )


def unread() -> NoReturn:
    """Raise TypeError: no value is read before the charge."""
    raise TypeError("a rehearsal reads no value")
