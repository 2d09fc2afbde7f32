"""Plans and releases of a store that counts in rho: charged and published in zCDP."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trafficdp.config.file import Config
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.planner.precision import precision
from trafficdp.planner.refusal import judge
from trafficdp.planner.zcdp_allocation import allocate_zcdp
from trafficdp.privacy.budget import left
from trafficdp.privacy.zcdp import ZCDP
from trafficdp.release.curator import Curator, too_little
from trafficdp.release.holdings import occasion_of, version_to_plan
from trafficdp.release.outcomes import ReleasedMap, ZCDPPlan
from trafficdp.release.planning import with_records
from trafficdp.release.publication import folder_of
from trafficdp.release.publishing_facts import same_question, specify
from trafficdp.sensitive.contributions import Contributions
from trafficdp.store import vault_fixes, vault_ledger

Opening = Callable[..., AbstractContextManager[Curator]]
TODO = (
    "ask for a larger rho or a coarser map; --force releases all the same, with every number marked (how far "
    "PLAN is off counts cannot tell)"
)


@dataclass(frozen=True)
class ZCDPMaps:
    """The maps of one city whose budget is in rho; ``Workspace.zcdp`` makes one.

    ``opening`` opens the store under its lock.
    """

    config: Config
    store: Path
    key_file: Path
    opening: Opening

    def plan(self, rho: ZCDP | str | float | None = None) -> ZCDPPlan:
        """Return what a release would cost and give, from public counts. Nothing is spent.

        Raises UsageError when no record lies in area and period, no bin has ``min_vehicles`` vehicles, no
        rho is named, or the store counts in epsilon.
        """
        with self.opening("plan") as curator:
            return self._planned(curator, rho)[0]

    def release(self, rho: ZCDP | str | float | None = None, *, force: bool = False) -> ReleasedMap:
        """Charge, draw and publish a release; see ``Workspace.release``, whose promises hold here too."""
        key = VehicleKey.load(self.key_file)
        with self.opening("release", recover=False) as curator:
            curator.vault.check_key(key.fingerprint)
            finished = curator.recover()
            planned, contributions = self._planned(curator, rho)
            verdict, allocation = planned.verdict, planned.allocation
            if verdict.refused and not force:
                raise too_little(verdict, self.config.bound, TODO)
            version = vault_fixes.data_version(curator.vault)
            occasion = occasion_of(self.config, curator.vault, version, self.config.grid, datetime.now(UTC))
            for name in finished:
                if same_question(curator.specification_of(name), occasion, allocation):
                    return ReleasedMap(curator.load(name), folder_of(self.store, name))
            release = curator.release(
                allocation,
                contributions,
                self.config.policy,
                lambda name, before: specify(occasion, allocation, contributions.counts, name, before),
                force=force,
            )
            return ReleasedMap(release, folder_of(self.store, release.id))

    def _planned(self, curator: Curator, rho: ZCDP | str | float | None) -> tuple[ZCDPPlan, Contributions]:
        config = self.config
        request = config.zcdp_request(rho if rho is None or isinstance(rho, ZCDP) else ZCDP.of(rho))
        budget = config.zcdp_budget
        version = version_to_plan(curator.vault, config)
        here = with_records(curator.contributions(config.grid, config.bound, version), config.grid)
        allocation = allocate_zcdp(here.counts, request)
        windows = budget.windows(datetime.now(UTC))
        remainders = left(windows, vault_ledger.spent_in(curator.vault, here.vehicle, windows))
        loss = allocation.event.loss_per_user
        paying = loss > 0
        sum_after = ZCDP(vault_ledger.totals(curator.vault).sum_of_maxima + allocation.loss.pico)
        plan = ZCDPPlan(
            allocation=allocation,
            verdict=judge(allocation),
            precision=precision(allocation),
            budget_left=ZCDP(int(remainders[paying].min(initial=budget.total.pico))),
            short=int((loss > remainders).sum()),
            delta=budget.delta,
            epsilon=budget.epsilon(allocation.loss),
            epsilon_of_sum=budget.epsilon(sum_after),
        )
        return plan, here
