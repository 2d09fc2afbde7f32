"""The main facts of a release for its report, from the disclosure and nothing else."""

from __future__ import annotations

from trafficdp.export.files.disclosure import on_city_clocks
from trafficdp.export.report import fact_sentences as sentences
from trafficdp.export.report.phrases import listed
from trafficdp.privacy.release import Release


def facts_of(release: Release) -> tuple[tuple[str, str], ...]:
    """Return the main facts as (term, text)."""
    disclosed, grid = release.disclosure, release.grid
    software, bounds = disclosed.identity.software, disclosed.bounds
    guarantee, accounting = disclosed.guarantee, disclosed.accounting
    facts = {
        "made": f"{on_city_clocks(release.created_at, grid.period.time_zone)}, "
        f"{software.name} {software.version}",
        "data": listed([each.name for each in disclosed.data.sources] or ["-"]),
        "grid": sentences.grid_in_words(
            grid.in_words(),
            grid.slot_kind.value.replace("_", " "),
            grid.period.time_zone,
        ),
        "speeds": sentences.clipping_in_words(bounds.clip_high, bounds.step, bounds.clip_unit),
        "guarantee": sentences.guarantee_in_short(
            guarantee.definition, guarantee.in_short, disclosed.unit.neighbouring_relation
        ),
    }
    rest = {
        "noise": sentences.noise_in_words({each.claim for each in disclosed.mechanisms}),
        "budget": sentences.budget_in_words(
            accounting.sum_of_maxima_before,
            accounting.sum_of_maxima_after,
            accounting.budget_per_vehicle,
            guarantee.quantity,
        ),
        "intervals": sentences.intervals_in_words(
            format(100 * release.interval_level, ".6g"), disclosed.uncertainty.interval_kind
        ),
        "data_version": disclosed.data.data_version,
        "ledger": f"{release.ledger.sequence}, {release.ledger.head_hash}",
        "check": sentences.verify_with(release.id),
    }
    return tuple((sentences.FACTS[name], text) for name, text in (facts | rest).items())
