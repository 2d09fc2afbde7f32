"""Messages as code and templates have them, catalogues as they are written, and texts of pages."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from jinja2 import Environment
from jinja2.ext import extract_from_ast

import trafficdp.export
from trafficdp.export.files.language import PLACES, STATED, catalogue_entries

EXPORT = Path(trafficdp.export.__file__).parent
TEMPLATES = sorted(EXPORT.glob("templates/*.*"))
CATALOGUES = {path.stem: path for path in sorted(EXPORT.glob("languages/*.po"))}

ENGLISH_WORDS = re.compile(
    r"\b(the|and|with|which|that|between|speeds?|vehicles?|records?|hexagons?|by|of|from|near|north|withheld)\b"
)


@cache
def messages():
    """Every message with where it stands: a text, or the two forms that it has by number: to be read only."""
    found = {}
    for path in TEMPLATES:
        for _, name, message in extract_from_ast(Environment().parse(path.read_text(encoding="utf-8"))):
            assert name in ("_", "ngettext"), f"{path.name}: {name}"
            texts = (message,) if isinstance(message, str) else message
            texts = texts[: 1 if name == "_" else 2]
            assert None not in texts, f"{path.name}: a message is no plain text"
            key = texts[0] if name == "_" else texts
            found.setdefault(key, path.name)
    for path in sorted(EXPORT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                number = {"gettext": 1, "ngettext": 2}.get(node.func.attr, 0)
                texts = [each.value for each in node.args[:number] if isinstance(each, ast.Constant)]
                if number and len(texts) == number:
                    found.setdefault(texts[0] if number == 1 else tuple(texts), path.name)
    for each in (*STATED, *PLACES):
        found.setdefault(each, "language.py")
    return found


def read(path):
    return dict(catalogue_entries(path.read_text(encoding="utf-8")))


def written(head, texts):
    """A catalogue of all messages, with the ``texts`` that it has already."""
    blocks = ["\n".join(['msgid ""', 'msgstr ""', *map(_quoted, head.splitlines(keepends=True))])]
    for key, where in sorted(messages().items(), key=lambda each: each[1]):
        one, *many = (key,) if isinstance(key, str) else key
        forms = texts.get(one, ("",) * (1 + len(many)))
        lines = [f"#: {where}", f"msgid {_quoted(one)}", *(f"msgid_plural {_quoted(each)}" for each in many)]
        marks = [f"msgstr[{number}]" for number in range(len(forms))] if many else ["msgstr"]
        lines += [f"{mark} {_quoted(form)}" for mark, form in zip(marks, forms, strict=True)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _quoted(text):
    return json.dumps(text, ensure_ascii=False)


class Texts(HTMLParser):
    """Texts of a page by the element that they are in, and those of attributes that people read."""

    READ = ("title", "aria-label", "alt", "placeholder")

    def __init__(self, page):
        super().__init__()
        self.within, self.found = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found += [(tag, value or "") for name, value in attrs if name in self.READ]
        if tag not in ("meta", "link", "input", "br"):
            self.within.append(tag)

    def handle_endtag(self, tag):
        while self.within and self.within.pop() != tag:
            pass

    def handle_data(self, data):
        if not {"style", "script"} & {*self.within}:
            self.found.append((self.within[-1] if self.within else "", data))
