"""By what it is decided whether a release says too little."""

from __future__ import annotations

from enum import StrEnum


class RefusalRule(StrEnum):
    """SKILL for maps, INTERVAL for answers and maps of one bin, RANK for quantiles: ``allocation``."""

    SKILL = "skill"
    INTERVAL = "interval"
    RANK = "rank"

    @property
    def stated(self) -> str:
        """What a manifest says of it, about its threshold and value."""
        return {
            RefusalRule.SKILL: "refused when the expected error in simulated cities, as a share of that of "
            "one number for the city, is above the threshold, or when more than one draw in ten is further "
            "off",
            RefusalRule.INTERVAL: "refused when the interval of the median bin can span the whole range: a "
            "share of it that reaches the threshold",
            RefusalRule.RANK: "refused when the interval of the median bin spans a larger share of its "
            "vehicles than the threshold",
        }[self]
