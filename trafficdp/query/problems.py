"""What is wrong with a question. Reading goes on after each, so that a working line can be offered."""

from __future__ import annotations

from dataclasses import dataclass, field

from trafficdp.errors import UsageError

WORKS = "this would work: "
CHANGE = "change that part (without it the question would be another); nothing was charged"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is refused: what, what was found, and what would have been right.

    ``got`` is of the dialect's words alone (``dialect.shown``) or of what was understood. ``same`` says that
    what is put in its place asks the same question, so that the line may be offered.
    """

    what: str
    got: str | None = None
    expected: str | None = None
    same: bool = False


class UnreadableError(Exception):
    """Part of a question cannot be understood; ``problem`` says why. Never leaves this room."""

    def __init__(
        self, what: str, got: str | None = None, expected: str | None = None, *, same: bool = False
    ) -> None:
        self.problem = Problem(what, got, expected, same)
        super().__init__(what)


@dataclass
class Problems:
    """The problems of one question, in the order in which they were met."""

    found: list[Problem] = field(default_factory=list)

    def add(
        self, what: str, got: str | None = None, expected: str | None = None, *, same: bool = False
    ) -> None:
        """Note a problem; reading goes on. ``same``: see Problem."""
        self.found.append(Problem(what, got, expected, same))

    def refusal(self, line: str) -> UsageError:
        """Return the error for the first problem, with the ``line`` that would work if it asks the same.

        A line without the condition that cannot be read, or with another column, would ask something else:
        none is offered then.
        """
        first = self.found[0]
        more = len(self.found) - 1
        others = f" (and {more} more)" if more else ""
        todo = f"{WORKS}{line}" if all(problem.same for problem in self.found) else CHANGE
        return UsageError(f"{first.what}{others}", got=first.got, expected=first.expected, todo=todo)
