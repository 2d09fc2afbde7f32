"""Statements from a terminal or a pipe: read until ``;``, run one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from trafficdp.cli.words.options import Output
from trafficdp.errors import TrafficdpError, UsageError

PROMPT = "trafficdp> "
CONTINUED = "      ...> "
HELP = (
    "\\d lists tables and views, \\d NAME the columns of one, \\x shows rows one below the other "
    "(again: as a table), \\q leaves; anything else is SQL up to a ;"
)
_QUOTES = {"'": "'", '"': '"', "--": "\n", "/*": "*/", "$$": "$$"}

Run = Callable[[str], None]


def split_statements(text: str) -> tuple[list[str], str]:
    """Return the statements of ``text`` that end in ``;``, and what comes after the last.

    A ``;`` within quotes, ``$$`` or a comment ends nothing.
    """
    statements: list[str] = []
    start = position = 0
    while position < len(text):
        opener = next((each for each in _QUOTES if text.startswith(each, position)), None)
        if opener is not None:
            end = text.find(_QUOTES[opener], position + len(opener))
            if end < 0:
                break
            position = end + len(_QUOTES[opener])
        elif text[position] == ";":
            statements.append(text[start:position])
            position += 1
            start = position
        else:
            position += 1
    return [statement for statement in statements if statement.strip()], text[start:]


def run_script(text: str, run: Run) -> None:
    """Run every statement of ``text``; the first error ends it. The last needs no ``;``."""
    statements, rest = split_statements(text)
    if rest.strip():
        statements.append(rest)
    for statement in statements:
        run(statement)


def run_shell(run: Run, describe: Run, turn: Callable[[], None], output: Output) -> None:
    """Read statements from the terminal and ``run`` them until ``\\q``; errors are shown and forgotten.

    ``describe`` answers ``\\d``: with nothing, or with the name of a table. ``turn`` answers ``\\x``.
    """
    with suppress(ImportError):
        # the import alone gives input() a history
        import readline  # noqa: F401 - for its effect
    output.say(HELP)
    for statement in _typed(output):
        try:
            if statement.startswith("\\"):
                _command(statement, describe, turn, output)
            else:
                run(statement)
        except TrafficdpError as error:
            output.error(str(error))
        except KeyboardInterrupt:
            output.warn("interrupted")


def _command(text: str, describe: Run, turn: Callable[[], None], output: Output) -> None:
    name, _, rest = text.partition(" ")
    if name == "\\?":
        output.say(HELP)
    elif name == "\\d":
        describe(rest.strip())
    elif name == "\\x":
        turn()
    else:
        raise UsageError(
            "there is no such command", got=f"{text:.40}", expected="\\d, \\d NAME, \\x, \\q or \\?"
        )


def _typed(output: Output) -> Iterator[str]:
    """Yield statements without their ``;`` and commands that start with a backslash, until the end."""
    pending = ""
    while True:
        try:
            line = input(CONTINUED if pending.strip() else PROMPT)
        except EOFError:
            output.say("")
            return
        except KeyboardInterrupt:
            pending = ""
            output.say("")
            continue
        command = line.strip().rstrip(";")
        if not pending.strip() and command.startswith("\\"):
            if command == "\\q":
                return
            yield command
            continue
        statements, pending = split_statements(f"{pending}{line}\n")
        yield from statements
