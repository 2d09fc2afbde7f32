"""The registry record of a release as the YAML file that the registry's repository takes."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from trafficdp.errors import DataError
from trafficdp.model import as_json
from trafficdp.privacy.release import Release


def registry_schema() -> dict[str, Any]:
    """Return the JSON schema of a tier 3 record: schemas/registry.schema.json."""
    text = (files("trafficdp.export") / "schemas" / "registry.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def registry_bytes(release: Release) -> bytes:
    """Return the record as YAML: one block, no folded lines (the registry's own check refuses those).

    Raises DataError when the record does not meet the schema.
    """
    import jsonschema
    import yaml
    from jsonschema.exceptions import best_match

    record = as_json(release.disclosure.registry)
    check = jsonschema.Draft202012Validator(
        registry_schema(), format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    error = best_match(check.iter_errors(record))
    if error is not None:
        raise DataError(
            f"the registry record is not complete at {error.json_path}",
            got=f"does not meet {error.validator!r}",
        )
    text: str = yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=float("inf"))
    return text.encode()
