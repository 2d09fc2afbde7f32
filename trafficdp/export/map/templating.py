"""How templates become pages: escaped, strict about names, the same bytes every time."""

from __future__ import annotations

import jinja2

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("trafficdp.export", "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}


def fill_template(template: str, **values: object) -> str:
    """Return the file ``template`` of the folder templates with ``values`` put in."""
    return _ENVIRONMENT.get_template(template).render(**values)
