"""The two kinds of loss a store may count in. A store has one, for ever."""

from __future__ import annotations

from enum import StrEnum


class LossKind(StrEnum):
    """PURE: epsilon. ZCDP: rho of zero-concentrated differential privacy."""

    PURE = "pure"
    ZCDP = "zcdp"

    @property
    def quantity(self) -> str:
        """What a number of the kind is called: epsilon or rho."""
        return "epsilon" if self is LossKind.PURE else "rho"

    @property
    def pico_key(self) -> str:
        """The field of a charge in the ledger that holds its largest loss."""
        return f"{self.quantity}_pico"
