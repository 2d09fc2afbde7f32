"""How templates become pages: escaped, strict about names, the same bytes every time."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trafficdp.export", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"fixed": fixed, "signed": signed}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment


def fill_template(template: str, **values: object) -> str:
    """Return the file ``template`` of the folder templates with ``values`` put in."""
    return _environment().get_template(template).render(**values)


def said(sentence: str, *facts: object) -> str:
    """Return as plain text what the macro ``sentence`` of ``report_words.html`` says of ``facts``."""
    macro = getattr(_environment().get_template("report_words.html").module, sentence)
    text: str = macro(*facts).unescape()
    return text


def fixed(number: float, digits: int = 0) -> str:
    """Return "1,234.50": ``number`` with so many decimals."""
    return f"{number:,.{digits}f}"


def signed(number: float, digits: int) -> str:
    """Return "+1.2" or "−1.2" with a true minus sign; 0 without any."""
    text = fixed(abs(number), digits)
    if not text.strip("0.,"):
        return text
    return f"−{text}" if number < 0 else f"+{text}"
