"""The promise and the main facts of a release for its report, from the disclosure and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trafficdp.export.files.disclosure import disclosed, rfc3339
from trafficdp.export.files.guarantee import in_short
from trafficdp.export.report import fact_sentences as sentences
from trafficdp.export.report.page import Promise
from trafficdp.export.report.phrases import listed
from trafficdp.privacy.release import Release


def promise_of(release: Release) -> Promise:
    """Return the privacy statement. Raises DataError when the disclosure lacks a field of it."""
    assumptions = _rows(release, "honesty", "assumptions")
    return Promise(
        protected=_text(release, "unit", "protected"),
        in_words=_text(release, "guarantee", "in_words"),
        sum_in_words=sentences.sum_of_releases(
            _text(release, "guarantee", "sum_of_maxima"),
            _text(release, "guarantee", "budget_per_vehicle"),
            _quantity(release),
        ),
        not_protected=tuple(str(each) for each in _list(release, "unit", "not_protected")),
        counts_revealed=_text(release, "honesty", "counts_revealed"),
        assumptions=tuple(str(each["text"]) for each in assumptions),
    )


def facts_of(release: Release) -> tuple[tuple[str, str], ...]:
    """Return the main facts as (term, text). Raises DataError when the disclosure lacks one."""
    software = disclosed(release, "identity", "software")
    made = f"{software['name']} {software['version']}" if isinstance(software, Mapping) else ""
    clip_unit = _text(release, "bounds", "clip_unit")
    facts = {
        "made": f"{rfc3339(release.created_at)}, {made}",
        "data": listed([str(each["name"]) for each in _rows(release, "data", "sources")] or ["-"]),
        "grid": sentences.grid_in_words(
            release.grid.resolution
            if release.grid.mosaic is None
            else f"{min(release.grid.resolutions)} to {max(release.grid.resolutions)}",
            release.grid.slot_kind.value.replace("_", " "),
            release.grid.period.time_zone,
        ),
        "speeds": sentences.clipping_in_words(
            _text(release, "bounds", "clip_high"), _text(release, "bounds", "step"), clip_unit
        ),
        "guarantee": sentences.guarantee_in_short(
            _text(release, "guarantee", "definition"),
            in_short(_guarantee(release)),
            _text(release, "unit", "neighbouring_relation"),
        ),
    }
    noise = [
        (f"{sentences.FACTS['noise']}, {each['statistic']}", _noise(each)) for each in _mechanisms(release)
    ]
    rest = {
        "budget": sentences.budget_in_words(
            _text(release, "accounting", "sum_of_maxima_before"),
            _text(release, "accounting", "sum_of_maxima_after"),
            _text(release, "accounting", "budget_per_vehicle"),
            _quantity(release),
        ),
        "intervals": sentences.intervals_in_words(
            format(100 * release.interval_level, ".6g"), _text(release, "uncertainty", "interval_kind")
        ),
        "data_version": _text(release, "data", "data_version"),
        "ledger": f"{release.ledger.sequence}, {release.ledger.head_hash}",
        "check": sentences.verify_with(release.id),
    }
    named = [*facts.items(), *rest.items()]
    lines = [(sentences.FACTS[name], text) for name, text in named]
    return (*lines[: len(facts)], *noise, *lines[len(facts) :])


def _noise(facts: Mapping[str, Any]) -> str:
    ends = [facts.get(f"noise_scale_{end}") for end in ("min", "max")]
    low, high = (None if each is None else f"{float(each):g}" for each in ends)
    return sentences.noise_in_words(
        str(facts["mechanism"]), str(facts["distribution"]), low, high, str(facts["unit"])
    )


def _guarantee(release: Release) -> Mapping[str, object]:
    disclosed(release, "guarantee", "epsilon")
    group = release.disclosure["guarantee"]
    return group if isinstance(group, Mapping) else {}


def _quantity(release: Release) -> str:
    """What the numbers that add up are called."""
    return "rho" if "rho" in _guarantee(release) else "epsilon"


def _mechanisms(release: Release) -> Sequence[Mapping[str, Any]]:
    mechanisms = release.disclosure.get("mechanisms", ())
    return mechanisms if isinstance(mechanisms, Sequence) else ()


def _text(release: Release, group: str, field: str) -> str:
    return str(disclosed(release, group, field))


def _list(release: Release, group: str, field: str) -> Sequence[Any]:
    found = disclosed(release, group, field)
    return found if isinstance(found, Sequence) else ()


def _rows(release: Release, group: str, field: str) -> Sequence[Mapping[str, Any]]:
    return _list(release, group, field)
