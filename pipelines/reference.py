"""What nobody writes by hand: the pages of configuration, command line, architecture; JSON Schemas.

    python pipelines/reference.py

Configuration: keys, defaults and meaning are those of the file that `trafficdp init` writes; what is accepted
is what the reader of the file says when a value is wrong. Command line: what the commands declare.
Architecture: the import contracts of pyproject.toml. Schemas: the dataclasses of the
manifest and of what commands print. Needs no data; the same version writes the same pages.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import tempfile
import tomllib
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from schemas import schema_text
from trafficdp.cli.commands.audit import AuditFacts
from trafficdp.cli.commands.compare import ComparisonFacts
from trafficdp.cli.commands.ledger import LedgerFacts
from trafficdp.cli.main import COMMANDS, command_function, options
from trafficdp.config.file import load_config, template
from trafficdp.errors import ConfigError
from trafficdp.export.files.manifest import Manifest

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "data" / "sample" / "trafficdp.toml"
WRITTEN = "Written by `make docs`: change {source}, not this page."

# ---------------------------------------------------------------- configuration

WRONG = "1979-05-27T07:32:00"
"""A value that is right for no key: an instant."""
SEVERAL = ("resolutions", "max_half_width", "longer_slots", "detail")
"""Keys of [map] that go with each other only."""
RHO = {"budget": ("kind", "rho_per_vehicle", "delta"), "privacy": ("rho",)}
"""The same, of stores that count in rho."""


@dataclass
class Key:
    """One setting of the template: its value as TOML text, what it means, whether the template sets it."""

    value: str
    meaning: str
    given: bool


@dataclass
class Section:
    """One table of the template; ``many`` if it may be repeated."""

    name: str
    many: bool
    meaning: str
    keys: dict[str, Key] = field(default_factory=dict)


def sections(text: str) -> list[Section]:
    """Return the tables of a configuration file with the comments above (or beside) tables and keys."""
    found, comment = [Section("", False, "")], list[str]()
    lines = iter(text.splitlines())
    for line in lines:
        if header := re.fullmatch(r"(?:# )?(\[\[?)(\w+)\]\]?", line):
            found.append(Section(header[2], header[1] == "[[", " ".join(comment)))
            comment = []
        elif setting := re.fullmatch(r"(#? *(?:# )?)([a-z_]+) = (.+?)(?:  # (.*))?", line):
            mark, name, value, beside = setting.groups()
            if value == "[":
                value = " ".join(["[", *_list(lines)])
            meaning = " ".join([*comment, *([_sentence(beside)] if beside else [])])
            found[-1].keys[name] = Key(value, meaning, given=not mark)
            comment = []
        elif line.startswith("#"):
            comment.append(line.lstrip("# "))
        else:
            comment = []
    return found


def _list(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line.lstrip("# ")
        if line.lstrip("# ") == "]":
            return


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


class Reader:
    """What ``load_config`` itself says of the keys of the template, when one is wrong, missing or unknown."""

    def __init__(self, template_: list[Section]) -> None:
        self._sections = {each.name: each for each in template_}

    def known(self, table: str) -> set[str]:
        """Return the keys of a table: the reader lists them when it meets another."""
        document = self._document(table, "")
        document[table]["zzzzzz"] = WRONG
        expected = str(self._refusal(document).expected)
        return set(expected.removeprefix("one of ").split(", ")) - set(self._sections)

    def accepts(self, table: str, key: str) -> str:
        """Return what is expected of a key when it holds something else."""
        document = self._document(table, key)
        document[table][key] = WRONG
        error = self._refusal(document)
        if key not in error.what:
            raise SystemExit(f"cannot ask what {table}.{key} accepts; the reader says: {error}")
        return str(error.expected)

    def needs(self, table: str, key: str) -> bool:
        """Whether the reader complains of the key when its table is there without it."""
        document = self._document(table, key)
        document[table].pop(key, None)
        try:
            return key in self._refusal(document).what
        except Accepted:
            return False

    def _document(self, table: str, key: str) -> dict[str, dict[str, str]]:
        """Return a valid configuration in which ``key`` has a meaning: the sample with what goes with it."""
        document = {
            each.name: {name: setting.value for name, setting in each.keys.items()}
            for each in sections(SAMPLE.read_text(encoding="utf-8"))
            # the template's source of speeds is of another kind
            if each.name != "knowledge"
        }
        if key in SEVERAL:
            document["map"] |= self._values("map", SEVERAL) | {"resolution": "7", "slot": '"hour_of_day"'}
        if key in RHO.get(table, ()):
            document["budget"] = self._values("budget", RHO["budget"])
            document["privacy"]["rho"] = document["privacy"].pop("epsilon")
            # accountings are of epsilon
            document["map"].pop("accounting", None)
        if table not in document:
            document[table] = self._values(table, self._sections[table].keys)
            # an area is a box or a file, not both
            document[table].pop("bbox" if key == "geojson" else "geojson", None)
        return document

    def _values(self, table: str, keys: Iterable[str]) -> dict[str, str]:
        return {key: self._sections[table].keys[key].value for key in keys}

    def _refusal(self, document: Mapping[str, Mapping[str, str]]) -> ConfigError:
        lines: list[str] = []
        for name in sorted(document):
            lines += [self.header(name)] if name else []
            lines += [f"{key} = {value}" for key, value in document[name].items()]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trafficdp.toml"
            for each in (*SAMPLE.parent.iterdir(), Path("streets.gpkg"), Path("gtfs.zip")):
                (Path(folder) / each.name).touch()
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            try:
                load_config(path)
            except ConfigError as error:
                return error
        raise Accepted("the reader of the configuration accepts a document that was meant to be wrong")

    def header(self, table: str) -> str:
        """Return the line that begins a table."""
        return f"[[{table}]]" if self._sections[table].many else f"[{table}]"


class Accepted(Exception):
    """A configuration that was asked about is valid."""


def configuration() -> str:
    """Return the page of the configuration file."""
    found = sections(template())
    reader = Reader(found)
    lines = [
        "# Configuration",
        WRITTEN.format(source="`trafficdp/cli/templates/trafficdp.toml`"),
        "`trafficdp init` writes a file with all of this in comments. Keys marked *to be chosen* have no "
        "default, because none would be right for every city. Paths are relative to the folder of the file.",
    ]
    for table in found:
        lines += [f"## `{reader.header(table.name)}`" if table.name else "## Above all tables"]
        lines += [table.meaning]
        if reader.known(table.name) != set(table.keys):
            differing = sorted(reader.known(table.name) ^ set(table.keys))
            raise SystemExit(f"template and reader differ in [{table.name}]: {', '.join(differing)}")
        for name, key in table.keys.items():
            if not key.meaning:
                raise SystemExit(f"the template does not say what [{table.name}] {name} means")
            if key.given:
                standing = "to be chosen" if "CHOOSE" in key.value else f"default `{key.value}`"
            else:
                needed = "needed here" if reader.needs(table.name, name) else "may be left out"
                standing = f"{needed}; for example `{key.value}`"
            lines.append(f"**`{name}`**, {standing}. {key.meaning}")
            lines.append(f"Accepts: {reader.accepts(table.name, name)}.")
    return _page(lines)


# ---------------------------------------------------------------- command line


def command_line() -> str:
    """Return the page of the command line."""
    lines = [
        "# Command line",
        WRITTEN.format(source="the commands in `trafficdp/cli`"),
        "`trafficdp [options] command [options]`. The exit codes are in the "
        "[README](../../README.md#the-main-job-in-five-commands). `trafficdp --install-completion` lets your "
        "shell complete commands and options.",
        "## Before or after the command",
        *_table(options),
    ]
    for name in COMMANDS:
        function = command_function(name)
        given = _parameters(function)
        usage = " ".join([f"trafficdp {name}", *(word for word, _, info in given if _is_argument(info))])
        lines += [f"## `{usage}`", inspect.getdoc(function) or "", *_table(function)]
    return _page(lines)


def _parameters(function: Callable[..., Any]) -> list[tuple[str, inspect.Parameter, Any]]:
    """Return (how it is written, the parameter, what typer is told of it) of every option and argument."""
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for parameter in inspect.signature(function).parameters.values():
        info = next(iter(getattr(hints[parameter.name], "__metadata__", ())), None)
        if info is None or info.hidden:
            continue
        kind = typing.get_args(hints[parameter.name])[0]
        value = info.metavar or _value(kind)
        if _is_argument(info):
            word = (info.metavar or parameter.name.upper()) + ("..." if _repeated(kind) else "")
            optional = parameter.default is not inspect.Parameter.empty
            found.append((f"[{word}]" if optional else word, parameter, info))
        else:
            # typer takes the first name that it is given for a default
            given = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
            names = given or [f"--{parameter.name.replace('_', '-')}"]
            found.append((" ".join([", ".join(names), value]).strip(), parameter, info))
    return found


def _is_argument(info: object) -> bool:
    return isinstance(info, type(typer.Argument()))


def _repeated(kind: object) -> bool:
    return any(typing.get_origin(each) in (list, tuple) for each in (kind, *typing.get_args(kind)))


def _value(kind: object) -> str:
    """Return how the value of an option without a word of its own is written; nothing for a switch."""
    kinds = [each for each in (kind, *typing.get_args(kind)) if isinstance(each, type)]
    for each in kinds:
        if issubclass(each, bool):
            return ""
        if issubclass(each, enum.Enum):
            return "<" + "|".join(str(item.value) for item in each) + ">"
        if issubclass(each, Path):
            return "<file>"
        if issubclass(each, int | float):
            return "<number>"
    return "<text>"


def _table(function: Callable[..., Any]) -> list[str]:
    rows = []
    for word, parameter, info in _parameters(function):
        default, text = parameter.default, info.help or ""
        if default is inspect.Parameter.empty and not _is_argument(info):
            text = f"Required. {text}"
        elif not (default is inspect.Parameter.empty or default is None or isinstance(default, bool)):
            shown = default.value if isinstance(default, enum.Enum) else default
            text += f" Default: `{f'{shown:g}' if isinstance(shown, float) else shown}`."
        rows.append(" | ".join(["", f"`{word}`".replace("|", "\\|"), text.replace("|", "\\|"), ""]).strip())
    return ["\n".join(["| | |", "|---|---|", *rows])] if rows else []


# ---------------------------------------------------------------- architecture

TYPING = "exclude_type_checking_imports"


def architecture() -> str:
    """Return the page of packages and walls, from the contracts that `make check` enforces."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(each for each in linter["contracts"] if each["type"] == "layers")
    walls = [each for each in linter["contracts"] if each["type"] == "forbidden"]
    rows = [[_room(name) for name in layer.split("|")] for layer in layers["layers"]]
    lines = [
        "# Architecture",
        WRITTEN.format(source="the contracts in `pyproject.toml` and the first line of each package"),
        "Imports point down only: a package may import what lies below it, never what lies above or beside "
        "it. `make check` refuses everything else."
        + (
            " Packages in one box may import each other."
            if any(":" in each for each in layers["layers"])
            else ""
        )
        + (" Imports for type checking alone are not counted." if linter[TYPING] else ""),
        "```text\n" + _drawing(rows) + "\n```",
    ]
    for wall in walls:
        sources, targets = (
            ", ".join(f"`{_room(name)}`" for name in wall[key])
            for key in ("source_modules", "forbidden_modules")
        )
        through = "" if wall.get("allow_indirect_imports") else ", nor what imports them"
        lines += [f"**{wall['name']}**: {sources} may not import {targets}{through}."]
    described = [_described(name) for row in rows for box in row for name in box.split(" : ")]
    lines.append("\n".join(["| package | what is in it |", "|---|---|", *described]))
    return _page(lines)


def _room(modules: str) -> str:
    """Return the name of a module without the package's; of several in one box, with colons between."""
    return " : ".join(each.strip().removeprefix("trafficdp.") for each in modules.split(":"))


def _drawing(rows: list[list[str]]) -> str:
    width = max(sum(len(name) + 4 for name in row) + len(row) - 1 for row in rows)
    lines = []
    for row in rows:
        # the boxes of a layer share the width of the drawing
        inner = width - (len(row) + 1)
        sizes = [inner // len(row) + (i < inner % len(row)) for i in range(len(row))]
        lines.append("+" + "+".join("-" * size for size in sizes) + "+")
        lines.append("|" + "|".join(name.center(size) for name, size in zip(row, sizes, strict=True)) + "|")
    return "\n".join([*lines, "+" + "-" * (width - 2) + "+"])


def _described(name: str) -> str:
    spec = find_spec(f"trafficdp.{name}")
    if spec is None or spec.origin is None:
        raise SystemExit(f"the contracts name trafficdp.{name}, which does not exist")
    file = Path(spec.origin)
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not text:
        raise SystemExit(f"{file.relative_to(ROOT)} does not say in its docstring what is in it")
    path = (file.parent if file.name == "__init__.py" else file).relative_to(ROOT)
    first = text.split("\n\n")[0].replace("\n", " ").replace("``", "`")
    return f"| `{path}` | {first} |"


# ---------------------------------------------------------------- pages


def _page(lines: list[str]) -> str:
    return "\n\n".join(line for line in lines if line) + "\n"


SCHEMAS = {
    "export/schemas/manifest": (Manifest, "trafficdp release manifest"),
    "cli/schemas/audit": (AuditFacts, "trafficdp audit --json"),
    "cli/schemas/compare": (ComparisonFacts, "trafficdp compare --json"),
    "cli/schemas/ledger": (LedgerFacts, "trafficdp ledger --json"),
}
PAGES: Mapping[str, Callable[[], str]] = {
    **{f"trafficdp/{name}.schema.json": partial(schema_text, *of) for name, of in SCHEMAS.items()},
    "docs/reference/configuration.md": configuration,
    "docs/reference/cli.md": command_line,
    "docs/architecture.md": architecture,
}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(), encoding="utf-8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
