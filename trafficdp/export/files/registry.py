"""A ready record for the OpenDP deployments registry, tier 3. Reviewed and submitted by the publisher.

Fields and enumerations are those of the registry's public schema and records of 2026, transcribed in
schemas/registry.schema.json. Its sectors know no transport; the publisher is a government.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files

from trafficdp.errors import DataError
from trafficdp.model import as_json
from trafficdp.privacy.disclosure import Coverage, Disclosure
from trafficdp.privacy.release import Release


def registry_record(facts: Disclosure) -> dict[str, object]:
    """Return the record that follows from the other field groups of the disclosure."""
    identity, coverage, unit, bounds = facts.identity, facts.coverage, facts.unit, facts.bounds
    guarantee, honesty, mechanisms = facts.guarantee, facts.honesty, facts.mechanisms
    period, software = coverage.period, identity.software
    published = "; ".join(f"{each.description} ({each.unit})" for each in mechanisms)
    return {
        "url_slug": slug(f"traffic-speeds-{coverage.place}-{identity.release}"),
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": f"Private traffic speeds of {coverage.place}",
                "data_curators": [
                    {"data_curator_name": identity.publisher, "data_curator_type": "Government"}
                ],
                "intended_use": "Traffic planning and research on speeds by place and time.",
                "data_product_type": "Summary statistics",
                "data_product_region": coverage.place,
                "data_product_sector": "Government",
                "description": f"A map of {_places(coverage)}, {period.first} to {period.last}: {published}.",
                "publication_date": identity.created_at[:10],
            },
            "dp_variant": {
                "variant_name": "Pure DP" if guarantee.rho is None else "Zero-concentrated DP",
                "data_domain": "Speed records of vehicles, each in one cell and slot of a declared grid, "
                f"clipped to [{bounds.clip_low}, {bounds.clip_high}] {bounds.clip_unit}.",
                "unprotected_quantities": f"{' '.join(unit.not_protected)} {honesty.counts_revealed}",
            },
            "privacy_loss": {
                "privacy_unit": "User-level",
                "privacy_unit_details": f"The unit is a vehicle. {unit.protected} Neighbouring relation: "
                f"{unit.neighbouring_relation}.",
                "privacy_parameters": {
                    name: float(loss)
                    for name, loss in {"epsilon": guarantee.epsilon, **guarantee.concentrated}.items()
                },
                "privacy_parameters_details": f"This release: {guarantee.in_short}. Sum over all "
                f"releases so far: {guarantee.sum_of_maxima}. No vehicle may pass "
                f"{guarantee.budget_per_vehicle}.",
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": "The publisher holds the records and adds noise before release.",
                "actors": f"{identity.publisher} holds the records; anyone may read the release.",
                "release_type": "Many releases",
                "release_type_details": "A ledger keeps every vehicle's total loss within a budget.",
                "data_source_type": "Static",
                "data_source_type_details": f"Records from {period.first} to {period.last}.",
                "access_type": "Non-interactive",
                "access_type_details": "Files are published; the records cannot be queried.",
            },
            "accounting": {
                "post_processing": " ".join(f"{each.rstrip('.')}." for each in facts.post_processing),
                "composition": facts.accounting.composition,
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": f"Tuning data: {honesty.tuning_data}.",
                "mechanisms": "; ".join(
                    f"{each.statistic}: {each.mechanism}, {each.distribution}, {each.sampler}, {each.library}"
                    f"{each.claim}"
                    for each in mechanisms
                ),
                "justification": f"{bounds.method}. Noise is drawn on exact integers, so that "
                "floating-point numbers leak nothing.",
            },
            "administrative": {
                "sources": f"The manifest of release {identity.release}, {software.name} {software.version}.",
                "registry_authors": [identity.publisher],
            },
        },
    }


def registry_bytes(release: Release) -> bytes:
    """Return the record as the YAML file that the registry takes: one block, no folded lines (its check
    refuses those).

    Raises DataError when the record does not meet the schema.
    """
    import jsonschema
    import yaml
    from jsonschema.exceptions import best_match

    record = as_json(release.disclosure.registry)
    schema = (files("trafficdp.export") / "schemas" / "registry.schema.json").read_text(encoding="utf-8")
    check = jsonschema.Draft202012Validator(
        json.loads(schema), format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    error = best_match(check.iter_errors(record))
    if error is not None:
        raise DataError(
            f"the registry record is not complete at {error.json_path}",
            got=f"does not meet {error.validator!r}",
        )
    text: str = yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=float("inf"))
    return text.encode()


def _places(coverage: Coverage) -> str:
    if coverage.zones is not None:
        return f"{coverage.zones.zones} zones of the city ({coverage.zones.file})"
    if coverage.mosaic is None:
        return f"hexagonal cells (H3 resolution {coverage.resolution})"
    every = sorted(coverage.mosaic.resolutions)
    return f"hexagonal cells (H3 resolution {every[0]} to {every[-1]})"


def slug(text: str) -> str:
    """Return ``text`` as a part of an address: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
