"""The room of the guarantee: read whole, in its order, and small."""

import io
import re
import tokenize
from pathlib import Path

from trafficdp import measurement

WAIST = Path(measurement.__file__).parent
ORDER = measurement.__doc__.split("read in this order")[1]
MAP_LINES, ALL_LINES = 450, 536
"""Of code: without docstrings, comments and empty lines."""


def code_lines(path):
    """How many lines of a file hold code."""
    text = path.read_text(encoding="utf-8")
    quiet = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        words = token.type == tokenize.STRING and token.line.strip().startswith('"""')
        if token.type not in quiet and token.string and not words:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found)


def test_the_room_of_the_guarantee_is_read_whole_in_its_order_and_stays_small():
    listed = [f"{name}.py" for name in re.findall(r"``(\w+)``", ORDER)]
    files = [path.name for path in WAIST.glob("*.py") if path.name != "__init__.py"]
    assert sorted(listed) == sorted(files)
    for number, name in enumerate(listed[: listed.index("measure.py")]):
        # what is read later is not needed before
        used = re.findall(r"from trafficdp\.measurement\.(\w+) import", (WAIST / name).read_text("utf-8"))
        assert {f"{each}.py" for each in used} <= set(listed[:number]), name
    lines = {name: code_lines(WAIST / name) for name in listed}
    assert sum(lines[name] for name in listed[: listed.index("measure.py") + 1]) <= MAP_LINES, lines
    assert sum(lines.values()) <= ALL_LINES, lines
