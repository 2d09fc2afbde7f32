"""What open-data portals read of a release: a Frictionless Data Package and a DCAT-AP 3 dataset.

Both follow from the disclosure and from the files that were written: ``datapackage.json`` (Data Package 1.0
with a Table Schema of cells.csv) and ``dataset.jsonld`` (DCAT-AP 3.0 as JSON-LD). They say nothing that the
manifest does not say. Addresses are those of the site: LANDING_PAGE/RELEASE/, or relative ones without a
landing page. With them the catalogues of a site, and a ready record for the OpenDP deployments registry,
tier 3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any
from urllib.parse import urljoin

import shapely
from shapely.geometry import shape

from trafficdp.binning.cells import bounding_box
from trafficdp.errors import DataError
from trafficdp.model import CatalogueEntry, Counted, Text, as_json
from trafficdp.privacy.disclosure import Disclosure, Sha256
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import Release

DATAPACKAGE = "datapackage.json"
DATASET = "dataset.jsonld"
CATALOGUE_FILES = (DATAPACKAGE, DATASET)
Json = Any
_AUTHORITY = "http://publications.europa.eu/resource/authority"
_KEYWORDS = ("traffic", "speed", "differential privacy")
"""Of every map, after the city's own."""
TITLES = {
    "cells.csv": "The table: one row a place and time slot",
    "cells.parquet": "The same table with outlines, as GeoParquet",
    "map.geojson": "The same as GeoJSON",
    "live.geojson": "The newest map as GeoJSON",
    "map.html": "The map, one page that works offline",
    "mechanism.parquet": "How the noise of every number was drawn",
    "measurements.parquet": "The noisy answers from which every number follows",
}
"""What the files of a release are."""
_MEDIA = {
    "csv": ("text/csv", "CSV"),
    "parquet": ("application/vnd.apache.parquet", "PARQUET"),
    "geojson": ("application/geo+json", "GEOJSON"),
    "html": ("text/html", "HTML"),
    "json": ("application/json", "JSON"),
}
"""By the ending of a file's name: its media type, and its name in the EU's list of file types."""
_CONTEXT = {
    "adms": "http://www.w3.org/ns/adms#",
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "geo": "http://www.opengis.net/ont/geosparql#",
    "prov": "http://www.w3.org/ns/prov#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "spdx": "http://spdx.org/rdf/terms#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column of a file. ``unit`` is None where a unit makes no sense (text, identifiers)."""

    name: Text
    unit: Text | None
    description: Text


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One written file: its name within the release, SHA-256 (hexadecimal), size and columns."""

    name: Text
    sha256: Sha256
    bytes: Counted
    columns: tuple[ColumnFacts, ...]


def title_and_description(facts: Disclosure) -> tuple[str, str]:
    """Return the title of a release, and one paragraph on what it is and under which promise."""
    period, stated = facts.coverage.period, ", ".join(each.description for each in facts.mechanisms)
    return (
        f"Traffic speeds of {facts.coverage.place}, {period.first} to {period.last}",
        f"A private map: {stated}. Every number carries noise and an interval. "
        f"{facts.unit.protected} {facts.guarantee.in_words} manifest.json says all of it.",
    )


def licence_address(licence: str) -> str:
    """Return the web address of ``licence``, which is an SPDX identifier or an address already."""
    return licence if licence.startswith("http") else f"https://spdx.org/licenses/{licence}"


def document_bytes(document: Json, *, sort_keys: bool = False) -> bytes:
    """Return ``document`` as indented JSON in UTF-8, ending in a line break."""
    text = json.dumps(document, sort_keys=sort_keys, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def stated_files(document: Mapping[str, Json]) -> dict[str, tuple[int, str]]:
    """Return (size in bytes, SHA-256) by file name, as a data package or dataset of ours states them."""
    if "resources" in document:
        return {
            each["path"]: (each["bytes"], each["hash"].removeprefix("sha256:"))
            for each in document["resources"]
        }
    return {
        each["dct:identifier"]: (
            int(each["dcat:byteSize"]["@value"]),
            each["spdx:checksum"]["spdx:checksumValue"]["@value"],
        )
        for each in document["dcat:distribution"]
    }


# Frictionless Data Package 1.0: https://specs.frictionlessdata.io/data-package/


def data_package(facts: Disclosure, files: Iterable[FileFacts]) -> dict[str, Json]:
    """Return the descriptor of ``files``; tables in CSV have their columns, types and primary key."""
    entry, identity = facts.catalogue, facts.identity
    title, description = title_and_description(facts)
    package: dict[str, Json] = {
        "profile": "data-package",
        "name": slug(f"traffic-speeds-{facts.coverage.place}-{identity.release}"),
        "title": title,
        "description": description,
        "created": identity.created_at,
        "keywords": [*dict.fromkeys((*entry.keywords, *_KEYWORDS))],
        "contributors": [{"title": identity.publisher, "role": "publisher"}],
        "sources": [
            {"title": f"Records of vehicles: {each.name} ({each.format})"} for each in facts.data.sources
        ],
        "resources": [_resource(each) for each in files],
    }
    if entry.landing_page is not None:
        package["homepage"] = entry.landing_page
    if entry.licence is not None:
        named = {} if entry.licence.startswith("http") else {"name": entry.licence}
        package["licenses"] = [{**named, "path": licence_address(entry.licence)}]
    if entry.contact is not None:
        kind = "path" if entry.contact.startswith("http") else "email"
        package["contributors"][0][kind] = entry.contact
    return package


def _resource(file: FileFacts) -> dict[str, Json]:
    ending = file.name.rpartition(".")[2]
    about: dict[str, Json] = {
        "name": file.name,
        "path": file.name,
        "title": TITLES.get(file.name, file.name),
        "format": ending,
        "mediatype": _MEDIA[ending][0],
        "bytes": file.bytes,
        "hash": f"sha256:{file.sha256}",
        "profile": "data-resource",
    }
    if ending != "csv":
        # its readers then compare size and hash, and do not look for rows
        return about | {"type": "file"}
    key, fields = file.columns[0].name, []
    for column in file.columns:
        # name and unit tell the type of a column, whatever it holds
        told: dict[str, Json] = {"name": column.name, "description": column.description, "type": "string"}
        if column.name in ("slot", "resolution") or column.unit in ("vehicles", "records"):
            told["type"] = "integer"
        elif column.name in ("slot_start", "slot_end"):
            told |= {"type": "datetime", "format": "%Y-%m-%dT%H:%M:%S%z"}
        elif column.unit is not None or column.name.endswith("_chance"):
            told["type"] = "number"
        if column.unit is not None:
            told["unit"] = column.unit
        if column.name in (key, "slot"):
            told["constraints"] = {"required": True}
        if column.name.endswith("status"):
            told["constraints"] = {"enum": [each.value for each in BinStatus]}
        fields.append(told)
    return about | {
        "profile": "tabular-data-resource",
        "encoding": "utf-8",
        "schema": {
            "fields": fields,
            "missingValues": [""],
            "primaryKey": [key, "slot"],
        },
    }


# DCAT-AP 3.0 as JSON-LD: https://semiceu.github.io/DCAT-AP/releases/3.0.0/


def catalogue(
    city: str,
    publisher: str,
    entry: CatalogueEntry,
    releases: Sequence[tuple[Disclosure, Sequence[FileFacts]]],
) -> dict[str, Json]:
    """Return the catalogue of a site: the datasets of ``releases``, the newest first, and their files."""
    node: dict[str, Json] = {
        "@context": _CONTEXT,
        "@id": _base(entry) or "./",
        "@type": "dcat:Catalog",
        "dct:title": _in_english(f"Traffic speeds of {city}"),
        "dct:description": _in_english(
            f"Maps of traffic speed, published by {publisher}. Every number carries noise that protects "
            "vehicles; the manifest of each map says how."
        ),
        "dct:publisher": {"@type": "foaf:Agent", "foaf:name": publisher},
        "dcat:dataset": [
            dataset(facts, files, _base(facts.catalogue) or "./", {}) for facts, files in releases
        ],
    }
    if releases:
        newest = releases[0][0].identity.created_at
        node["dct:modified"] = {"@type": "xsd:dateTime", "@value": newest}
    if entry.language is not None:
        node["dct:language"] = _language(entry.language)
    if entry.licence is not None:
        node["dct:license"] = {"@id": licence_address(entry.licence), "@type": "dct:LicenseDocument"}
    if entry.landing_page is not None:
        node["foaf:homepage"] = {"@id": entry.landing_page, "@type": "foaf:Document"}
    return node


def _base(entry: CatalogueEntry) -> str | None:
    """Return the address above those of releases, with a slash at its end; None without a landing page."""
    return None if entry.landing_page is None else f"{entry.landing_page.rstrip('/')}/"


def dataset(
    facts: Disclosure,
    files: Sequence[FileFacts],
    base: str | None = None,
    context: Mapping[str, Json] = MappingProxyType({"@context": _CONTEXT}),
) -> dict[str, Json]:
    """Return the DCAT-AP dataset of a release as JSON-LD, with its ``files``.

    ``base`` is the address above the release's. Without ``context`` the result is a part of another
    document.
    """
    entry, identity = facts.catalogue, facts.identity
    base = base or _base(entry)
    address = "./" if base is None else f"{base}{identity.release}/"
    title, description = title_and_description(facts)
    language = entry.language or "en"
    read = ", ".join(f"{each.name} ({each.format})" for each in facts.data.sources)
    software = f"{identity.software.name} {identity.software.version}"
    # the box around the study area; of two parts across the antimeridian
    west, south, east, north = bounding_box([shape(as_json(facts.coverage.study_area))])
    sides = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    boxes = [shapely.box(first, south, last, north) for first, last in sides]
    box = shapely.to_wkt(boxes[0] if len(boxes) == 1 else shapely.MultiPolygon(boxes), rounding_precision=7)
    node: dict[str, Json] = {
        **context,
        "@id": address,
        "@type": "dcat:Dataset",
        "dct:identifier": identity.release,
        "dct:title": _in_english(title),
        "dct:description": _in_english(description),
        "dct:issued": {"@type": "xsd:dateTime", "@value": identity.created_at},
        "dcat:version": identity.release,
        "dct:publisher": {"@type": "foaf:Agent", "foaf:name": identity.publisher},
        "dcat:keyword": [
            *({"@value": each, "@language": language} for each in entry.keywords),
            *(_in_english(each) for each in _KEYWORDS if each not in entry.keywords),
        ],
        "dcat:theme": {
            "@id": f"{_AUTHORITY}/data-theme/TRAN",
            "@type": "skos:Concept",
            "skos:prefLabel": _in_english("Transport"),
        },
        "dct:accessRights": {
            "@id": f"{_AUTHORITY}/access-right/PUBLIC",
            "@type": "dct:RightsStatement",
        },
        "dct:spatial": {
            "@type": "dct:Location",
            "skos:prefLabel": facts.coverage.place,
            "dcat:bbox": {"@type": "geo:wktLiteral", "@value": box},
        },
        "dct:temporal": {
            "@type": "dct:PeriodOfTime",
            "dcat:startDate": {"@type": "xsd:date", "@value": str(facts.coverage.period.first)},
            "dcat:endDate": {"@type": "xsd:date", "@value": str(facts.coverage.period.last)},
        },
        "dct:provenance": {
            "@type": "dct:ProvenanceStatement",
            "rdfs:label": _in_english(
                f"Made from records of vehicles ({read}) by {software} under "
                f"{facts.guarantee.definition}, {facts.guarantee.in_short}. Entry "
                "and hash of the ledger are in manifest.json."
            ),
        },
        "foaf:page": [
            {"@id": f"{address}{name}", "@type": "foaf:Document"} for name in ("manifest.json", DATAPACKAGE)
        ],
        "dcat:distribution": [_distribution(facts, each, address) for each in files],
    }
    if entry.language is not None:
        node["dct:language"] = _language(entry.language)
    if entry.landing_page is not None:
        node["dcat:landingPage"] = {"@id": entry.landing_page, "@type": "foaf:Document"}
    if entry.contact is not None:
        by_web = entry.contact.startswith("http")
        where = "vcard:hasURL" if by_web else "vcard:hasEmail"
        address = entry.contact if by_web else f"mailto:{entry.contact}"
        person = {"@type": "vcard:Kind", "vcard:fn": identity.publisher, where: {"@id": address}}
        node["dcat:contactPoint"] = person
    if entry.previous is not None:
        node["dcat:previousVersion"] = {"@id": f"{base or '../'}{entry.previous}/"}
    return node


def _in_english(text: str) -> dict[str, str]:
    return {"@value": text, "@language": "en"}


def _language(tag: str) -> dict[str, str]:
    """The language of a tag, without script and region: ISO 639-1 has two letters, ISO 639-2 three."""
    code = tag.partition("-")[0]
    part = "iso639-1" if len(code) == 2 else "iso639-2"
    return {"@id": f"http://id.loc.gov/vocabulary/{part}/{code}", "@type": "dct:LinguisticSystem"}


def _distribution(facts: Disclosure, file: FileFacts, address: str) -> dict[str, Json]:
    media, named = _MEDIA[file.name.rpartition(".")[2]]
    node: dict[str, Json] = {
        "@id": f"{address}{file.name}",
        "@type": "dcat:Distribution",
        "dct:identifier": file.name,
        "dct:title": _in_english(TITLES.get(file.name, file.name)),
        "dcat:accessURL": {"@id": address, "@type": "rdfs:Resource"},
        "dcat:downloadURL": {"@id": f"{address}{file.name}", "@type": "rdfs:Resource"},
        "dct:format": {"@id": f"{_AUTHORITY}/file-type/{named}", "@type": "dct:MediaTypeOrExtent"},
        "dcat:mediaType": {
            "@id": f"https://www.iana.org/assignments/media-types/{media}",
            "@type": "dct:MediaType",
        },
        "dcat:byteSize": {"@type": "xsd:nonNegativeInteger", "@value": str(file.bytes)},
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256", "@type": "spdx:ChecksumAlgorithm"},
            "spdx:checksumValue": {"@type": "xsd:hexBinary", "@value": file.sha256},
        },
    }
    if facts.catalogue.licence is not None:
        licence = licence_address(facts.catalogue.licence)
        node["dct:license"] = {"@id": licence, "@type": "dct:LicenseDocument"}
    return node


# DCAT-US 3.0 as JSON, which data.gov harvests as /data.json: https://github.com/GSA/dcat-us


def catalogue_of_us(document: Mapping[str, Json], contact: str) -> dict[str, Json]:
    """Return a ``catalogue`` with addresses as DCAT-US has it; ``contact``: the e-mail address to write to.

    It says what the other says. Its terms are plain texts and lists where DCAT-AP has nodes.
    """
    publisher = _organisation(document)
    about = {"@type": "Kind", "fn": publisher["name"], "hasEmail": f"mailto:{contact}"}
    found: dict[str, Json] = {
        "@id": f"{document['@id']}data.json",
        "@type": "Catalog",
        "conformsTo": {"@type": "Standard", "title": "DCAT-US 3.0"},
        "title": document["dct:title"]["@value"],
        "description": document["dct:description"]["@value"],
        "publisher": {**publisher, "@type": "Agent"},
        "contactPoint": [about],
        "homepage": _page_of_us(document, "foaf:homepage"),
        "dataset": [_dataset_of_us(each, about, document["@id"]) for each in document["dcat:dataset"]],
    }
    if "dct:modified" in document:
        found["modified"] = document["dct:modified"]["@value"]
    if "dct:license" in document:
        found["license"] = document["dct:license"]["@id"]
    return found


def _dataset_of_us(node: Mapping[str, Json], contact: Json, base: str) -> dict[str, Json]:
    place, period = node["dct:spatial"], node["dct:temporal"]
    # of a release before the city had addresses it is relative
    address = urljoin(base, node["@id"])
    found: dict[str, Json] = {
        "@id": address,
        "@type": "Dataset",
        "identifier": address,
        "title": node["dct:title"]["@value"],
        "description": node["dct:description"]["@value"],
        "publisher": _organisation(node),
        "contactPoint": [contact],
        "issued": node["dct:issued"]["@value"],
        "version": node["dcat:version"],
        "keyword": [each["@value"] for each in node["dcat:keyword"]],
        "accessRights": "public",
        "spatial": {
            "@type": "Location",
            "prefLabel": place["skos:prefLabel"],
            "bbox": place["dcat:bbox"]["@value"],
        },
        "temporal": [
            {
                "@type": "PeriodOfTime",
                "startDate": period["dcat:startDate"]["@value"],
                "endDate": period["dcat:endDate"]["@value"],
            }
        ],
        "provenance": [node["dct:provenance"]["rdfs:label"]["@value"]],
        "distribution": [_distribution_of_us(each, base) for each in node["dcat:distribution"]],
    }
    if "dcat:landingPage" in node:
        found["landingPage"] = _page_of_us(node, "dcat:landingPage")
    code = node.get("dct:language", {}).get("@id", "").rpartition("/")[2]
    if len(code) == 2:
        # it knows no others
        found["language"] = code
    return found


def _distribution_of_us(node: Mapping[str, Json], base: str) -> dict[str, Json]:
    found: dict[str, Json] = {
        "@id": urljoin(base, node["@id"]),
        "@type": "Distribution",
        "identifier": node["dct:identifier"],
        "title": node["dct:title"]["@value"],
        "accessURL": urljoin(base, node["dcat:accessURL"]["@id"]),
        "downloadURL": urljoin(base, node["dcat:downloadURL"]["@id"]),
        "format": node["dct:format"]["@id"].rpartition("/")[2],
        "mediaType": node["dcat:mediaType"]["@id"].partition("media-types/")[2],
        "byteSize": node["dcat:byteSize"]["@value"],
        "checksum": {
            "@type": "Checksum",
            "algorithm": "SHA-256",
            "checksumValue": node["spdx:checksum"]["spdx:checksumValue"]["@value"],
        },
    }
    if "dct:license" in node:
        found["license"] = node["dct:license"]["@id"]
    return found


def _organisation(node: Mapping[str, Json]) -> dict[str, str]:
    return {"@type": "Organization", "name": node["dct:publisher"]["foaf:name"]}


def _page_of_us(node: Mapping[str, Json], name: str) -> dict[str, str]:
    return {"@type": "Document", "title": node["dct:title"]["@value"], "accessURL": node[name]["@id"]}


# The record for the OpenDP deployments registry is reviewed and submitted by the publisher.
#
# Fields and enumerations are those of the registry's public schema and records of 2026, transcribed in
# schemas/registry.schema.json. Its sectors know no transport; the publisher is a government.


def registry_record(facts: Disclosure) -> dict[str, object]:
    """Return the entry for a public registry of releases, derived from what else ``facts`` says."""
    identity, coverage, unit, bounds = facts.identity, facts.coverage, facts.unit, facts.bounds
    guarantee, honesty, mechanisms = facts.guarantee, facts.honesty, facts.mechanisms
    period, software = coverage.period, identity.software
    published = "; ".join(f"{each.description} ({each.unit})" for each in mechanisms)
    if coverage.zones is not None:
        places = f"{coverage.zones.zones} zones of the city ({coverage.zones.file})"
    elif coverage.mosaic is None:
        places = f"hexagonal cells (H3 resolution {coverage.resolution})"
    else:
        every = sorted(coverage.mosaic.resolutions)
        places = f"hexagonal cells (H3 resolution {every[0]} to {every[-1]})"
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
                "description": f"A map of {places}, {period.first} to {period.last}: {published}.",
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


def slug(text: str) -> str:
    """Return ``text`` in the letters of web addresses: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
