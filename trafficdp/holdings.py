"""What a store holds: its releases, its fixes, what was spent. For the curator's eyes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from trafficdp.curator import Curator
from trafficdp.outcomes import ReleaseSummary, Status, WindowSpending
from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.loss import PureDP
from trafficdp.publication import folder_of
from trafficdp.store import vault_analysts, vault_fixes, vault_ledger, vault_releases


def summaries(curator: Curator, store: Path) -> list[ReleaseSummary]:
    """Return every charged release, in order."""
    entries = {row.sequence: row.facts for row in vault_ledger.rows(curator.vault)}
    return [
        ReleaseSummary(
            id=stored.release_id,
            status="withdrawn" if stored.withdrawn else "published" if stored.published else "unfinished",
            sequence=stored.sequence,
            epsilon=PureDP(int(str(entries[stored.sequence]["epsilon_pico"]))),
            created_at=str(entries[stored.sequence]["at"]),
            folder=folder_of(store, stored.release_id),
        )
        for stored in vault_releases.all_releases(curator.vault)
    ]


def status_of(curator: Curator, store: Path, policy: BudgetPolicy, at: datetime) -> Status:
    """Return what the store holds; the budget of ``policy`` is shown in the windows that hold ``at``."""
    version = vault_fixes.data_version(curator.vault)
    counts = vault_fixes.count_fixes(curator.vault, version.ingest_id)
    releases = vault_releases.all_releases(curator.vault)
    spent = vault_ledger.totals(curator.vault)
    return Status(
        store=store,
        fixes=counts.fixes,
        vehicles=counts.vehicles,
        derived=counts.derived,
        files=version.ingest_id,
        data_version=version.digest,
        releases=len(releases),
        unfinished=sum(not each.finished for each in releases),
        largest_spent=PureDP(spent.largest),
        sum_of_maxima=PureDP(spent.sum_of_maxima),
        budget=policy.total,
        analysts=tuple(vault_analysts.spending(curator.vault)),
        windows=tuple(
            WindowSpending(
                window.name, window.ceiling, PureDP(vault_ledger.largest_spent_in(curator.vault, window))
            )
            for window in policy.windows(at)
            if window.end is not None
        ),
    )
