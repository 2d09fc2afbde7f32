"""All errors with their exit codes, and checks of arguments. Messages say what, got, expected, what to do.

A message never carries a sensitive value: no plate or its hash, no coordinate, no speed of a record.
Counts of rows and names of columns, files and settings may appear.

Each class states the exit code of the command line, which scripts rely on:
0 ok, 1 our bug, 2 usage, 3 budget, 4 bad data, 5 refused as too inaccurate, 6 store unavailable,
130 interrupted.

A check takes its value by keyword, so that the message can say ``name=value``.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection
from fractions import Fraction
from numbers import Real


class TrafficdpError(Exception):
    """Base of every error that trafficdp raises on purpose.

    Parameters
    ----------
    what : what went wrong, without a full stop.
    got, expected : what was found and what would have been right, if there is such a thing.
    todo : the next step for the reader.
    """

    exit_code = 1

    def __init__(
        self, what: str, *, got: object = None, expected: object = None, todo: str | None = None
    ) -> None:
        self.what = what
        self.got = got
        self.expected = expected
        self.todo = todo
        parts = [what]
        if got is not None:
            parts.append(f"got {got}")
        if expected is not None:
            parts.append(f"expected {expected}")
        if todo is not None:
            parts.append(todo)
        super().__init__("; ".join(" ".join(str(part).split()) for part in parts))


class UsageError(TrafficdpError):
    """The call, an option or the configuration is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """A key of the configuration file is missing, misspelt or out of range."""


class InsufficientBudgetError(TrafficdpError):
    """A release would take some vehicle past the budget.

    Parameters
    ----------
    remaining : what the vehicle that would exceed its budget most may still spend (epsilon).
    requested : what the release would cost that vehicle (epsilon).
    window : the year or month whose budget it is, in words; None: that of all time.
    quantity : what the numbers count, "epsilon" or "rho".
    shared : whether all vehicles share one budget, which is what is short.
    """

    exit_code = 3

    def __init__(
        self,
        *,
        remaining: Fraction | float,
        requested: Fraction | float,
        window: str | None = None,
        quantity: str = "epsilon",
        shared: bool = False,
    ) -> None:
        self.quantity = quantity
        self.shared = shared
        self.remaining = remaining
        self.requested = requested
        self.window = window
        cost, left = f"{float(requested):.6g}", f"{float(remaining):.6g}"
        if cost == left:
            # they differ further back: losses are whole numbers of 10^-12
            cost, left = _twelve_decimals(requested), _twelve_decimals(remaining)
        super().__init__(
            "privacy budget exceeded",
            got=f"a release that costs {quantity} {cost}",
            expected=f"at most the remaining {left}" + ("" if window is None else f" {window}"),
            todo=self._what_to_do(window),
        )

    def _what_to_do(self, window: str | None) -> str:
        if window is None and self.remaining <= 0 and self.shared:
            return (
                "the budget that all vehicles share is empty: nothing more can be released from this store; "
                "budget that is spent never comes back"
            )
        if window is None and self.remaining <= 0:
            return (
                "some vehicle has nothing left: only a map without the bins it drove in can be released; "
                "budget that is spent never comes back"
            )
        if window is None and self.shared:
            return (
                f"release with a smaller {self.quantity} (--within-budget: all that is left); fewer bins "
                "cost no less, since all vehicles share one budget; budget that is spent never comes back"
            )
        if window is None:
            return (
                f"release with a smaller {self.quantity} (--within-budget: the largest that all can pay) or "
                "fewer bins; budget that is spent never comes back"
            )
        return "release with a smaller epsilon or fewer bins, or in a later period"


class AnalystBudgetError(InsufficientBudgetError):
    """A question would take some vehicle past what the analyst who asks may spend of it.

    ``remaining`` and ``requested`` as in InsufficientBudgetError, of the budget of ``analyst``.
    """

    def __init__(
        self,
        *,
        analyst: str,
        remaining: Fraction | float,
        requested: Fraction | float,
        quantity: str = "epsilon",
        shared: bool = False,
    ) -> None:
        self.analyst = analyst
        super().__init__(
            remaining=remaining,
            requested=requested,
            window=f"of analyst {analyst}",
            quantity=quantity,
            shared=shared,
        )

    def _what_to_do(self, window: str | None) -> str:
        fewer = "" if self.shared else " or fewer hexagons"
        return f"ask with a smaller epsilon{fewer}; budget that is spent never comes back"


def _twelve_decimals(number: Fraction | float) -> str:
    whole, rest = divmod(round(Fraction(number) * 10**12), 10**12)
    return f"{whole}.{rest:012d}"


class DataError(TrafficdpError):
    """Input data cannot be read, or is not what was declared."""

    exit_code = 4


class AllocationError(TrafficdpError):
    """A plan would cost some vehicle more than it is charged; nothing was spent."""


class UninformativeReleaseError(TrafficdpError):
    """The release would say nothing: its expected error is too close to that of a constant."""

    exit_code = 5


class StoreUnavailableError(TrafficdpError):
    """The store cannot be used now: see the subclasses."""

    exit_code = 6


class StoreBusyError(StoreUnavailableError):
    """Another process holds the store."""


class StoreVersionError(StoreUnavailableError):
    """The store was written by another version of trafficdp."""


class StoreKeyError(StoreUnavailableError):
    """The key file is missing, readable by others, or not the one this store was made with."""


class StoreReadOnlyError(StoreUnavailableError):
    """The store cannot be written to."""


class StoreFullError(StoreUnavailableError):
    """The disk is full, or a file may not grow any more."""


class StoreBehindError(StoreUnavailableError):
    """The ledger in the vault is older than a release that was signed with it."""


class StoreDamagedError(StoreUnavailableError):
    """The store is not what it should be: a file is missing or the ledger's chain is broken."""


class VerificationError(DataError):
    """A release does not agree with the vault and its ledger."""


def finite(**named: object) -> float:
    """Return the one keyword argument as a float; raise UsageError unless it is a finite number."""
    ((name, value),) = named.items()
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        # an integer beyond every float, perhaps too long to print
        number, value = math.inf, math.inf
    if not math.isfinite(number):
        raise UsageError(
            f"{name} is not a finite number", got=f"{name}={value!r}", expected="a finite number"
        )
    return number


def positive(**named: object) -> float:
    """Return the one keyword argument as a float; raise UsageError unless it is finite and above 0."""
    ((name, value),) = named.items()
    number = finite(**{name: value})
    if number <= 0:
        raise UsageError(f"{name} is not positive", got=f"{name}={value!r}", expected="a number above 0")
    return number


def in_range(low: float, high: float, **named: object) -> float:
    """Return the one keyword argument as a float; raise UsageError unless low < value < high."""
    ((name, value),) = named.items()
    number = finite(**{name: value})
    if not low < number < high:
        raise UsageError(
            f"{name} is out of range", got=f"{name}={value!r}", expected=f"{low} < {name} < {high}"
        )
    return number


def integer_between(low: int, high: int, **named: object) -> int:
    """Return the one keyword argument as an int; raise UsageError unless it is one in low..high."""
    ((name, value),) = named.items()
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(
            f"{name} is out of range", got=f"{name}={value!r}", expected=f"an integer from {low} to {high}"
        )
    return value


def did_you_mean(word: str, allowed: Collection[str]) -> str | None:
    """Return the question whether the nearest of ``allowed`` was meant; None when none is near."""
    near = difflib.get_close_matches(word, list(allowed), n=1)
    return f'did you mean "{near[0]}"?' if near else None


def one_of(allowed: Collection[str], **named: object) -> str:
    """Return the one keyword argument; raise UsageError unless it is one of ``allowed``."""
    ((name, value),) = named.items()
    if not isinstance(value, str) or value not in allowed:
        raise UsageError(
            f"{name} is unknown",
            got=f"{name}={value!r}",
            expected="one of " + ", ".join(sorted(allowed)),
            todo=did_you_mean(value, allowed) if isinstance(value, str) else None,
        )
    return value
