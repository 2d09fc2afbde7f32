"""A bin: one H3 cell and one slot. The papers call it a grid, IUDX a HAT."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Bin:
    """One bin. ``cell`` is an H3 index (uint64), ``slot`` a number whose meaning its SlotKind gives."""

    cell: int
    slot: int
