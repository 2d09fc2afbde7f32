"""How templates become pages: in one language, escaped, strict about names, the same bytes every time."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from trafficdp.export.files.language import ENGLISH, PLACES, Language

if TYPE_CHECKING:
    import jinja2


@cache
def _environment(language: Language) -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trafficdp.export", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "fixed": language.fixed,
        "signed": language.signed,
        "written": language.number,
        "dates": language.dates,
        "month": language.month,
        "long_date": language.long_date,
        "translated": language.translated,
        "place": lambda text: language.translated(text, PLACES),
    }
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}

    # a message may hold marks of HTML; what is put into its holes is escaped
    def gettext(message: str, /, **facts: object) -> Markup:
        text = Markup(language.gettext(message))
        return text.format(**facts) if facts else text

    def ngettext(one: str, many: str, number: int, /, **facts: object) -> Markup:
        text = Markup(language.ngettext(one, many, number))
        return text.format(**facts) if facts else text

    environment.globals |= {"_": gettext, "ngettext": ngettext, "language": language.tag}
    return environment


def fill_template(template: str, language: Language, **values: object) -> str:
    """Return the file ``template`` of the folder templates, in ``language``, with ``values`` put in."""
    return _environment(language).get_template(template).render(**values)


def said(sentence: str, *facts: object, language: Language = ENGLISH) -> str:
    """Return as plain text what the macro ``sentence`` of ``report_words.html`` says of ``facts``."""
    macro = getattr(_environment(language).get_template("report_words.html").module, sentence)
    text: str = macro(*facts).unescape()
    return text
