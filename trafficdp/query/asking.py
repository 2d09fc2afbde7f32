"""The way of a question to its answer: an earlier release that holds it, or one charge through the door."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from trafficdp.config.settings import Config
from trafficdp.errors import UninformativeReleaseError, UsageError
from trafficdp.model import Counts
from trafficdp.planner.allocation import uninformative_error
from trafficdp.privacy.analyst import Analyst
from trafficdp.privacy.loss import Loss, PureDP
from trafficdp.privacy.release import Release
from trafficdp.query.answer import Answered, names_of_places, rows_of
from trafficdp.query.explanation import Explanation, explained
from trafficdp.query.problems import WORKS
from trafficdp.query.question import Question
from trafficdp.query.reading import read_question
from trafficdp.release.curator import Curator
from trafficdp.release.holdings import earlier_release
from trafficdp.release.outcomes import Plan, Planner, PlanQuestion
from trafficdp.release.publishing_facts import Occasion, specify
from trafficdp.store import vault_analysts, vault_ledger

NOTHING = PureDP(0)
NOISY_COUNTS = (
    "counts are noisy; their intervals are of the noise alone, for a vehicle in very many bins counts as less"
)
RANKS_NOTE = (
    "quantiles are over vehicles: each vehicle's mean speed counts once; with {level} % the number lies "
    "between the speeds of the vehicles rank_low and rank_high, counted from the slowest"
)
COUNTS_NOTE = (
    "counts are exact: how many records and vehicles are where is public by assumption (counts_public)"
)


def role_of(config: Config, name: str | None, *, needed: bool) -> Analyst | None:
    """Return the analyst called ``name``; None without a name, unless one is ``needed``.

    Raises UsageError for a name that the configuration does not have, and where analysts are configured
    and nobody says who asks.
    """
    names = ", ".join(each.name for each in config.analysts)
    if name is None:
        if needed and config.analysts:
            raise UsageError("nobody says who asks", expected=f"one of {names}", todo="add --as NAME")
        return None
    found = [each for each in config.analysts if each.name.casefold() == name.strip().casefold()]
    if not found:
        raise UsageError(
            "there is no such analyst",
            got=f"{name:.60}",
            expected=f"one of {names}" if names else "[[analysts]] in the configuration",
            todo="correct the name, or add the role to the configuration",
        )
    return found[0]


def _offer(question: Question, config: Config) -> str:
    """Return the line that is offered instead: no words of the asker's."""
    return question.without_names(config).to_sql(config)


@dataclass(frozen=True)
class Asking:
    """One question, by one analyst (None: the curator).

    ``config`` is the city's, ``there`` the one under which the question is the whole map.
    """

    question: Question
    config: Config
    there: Config
    analyst: Analyst | None

    @classmethod
    def of(cls, text: str, config: Config, analyst: str | None, store: Path) -> Asking:
        """Return what ``text`` asks, with names of places from the map of ``store``.

        Raises as ``read_question`` and ``role_of`` do.
        """
        question = read_question(text, config, partial(names_of_places, config, store))
        spends = (config.relation.hides_presence or bool(question.statistics)) and not question.explain
        role = role_of(config, analyst, needed=spends)
        return cls(question, config, question.configured(config), role)

    def answer(self, curator: Curator, planning: Planner, occasion: Occasion) -> Answered | Explanation:
        """Return the answer, or the explanation that is asked for instead; ``planning`` is of ``there``.

        The same question of the same data again is answered from its first release, for nothing. Raises
        UninformativeReleaseError, InsufficientBudgetError and AnalystBudgetError before anything is charged.
        """
        published = replace(occasion, question=self.question.plain(self.config).to_sql(self.config))
        own = (self.question, self.config, self.there, self.analyst)
        return _Answering(*own, curator, planning, published).found()


@dataclass(frozen=True)
class _Answering(Asking):
    """A question that is being answered, under the store's lock."""

    curator: Curator
    planning: Planner
    occasion: Occasion

    @property
    def hidden(self) -> bool:
        return self.there.relation.hides_presence

    def found(self) -> Answered | Explanation:
        """Return the answer, or what it would cost."""
        if not (self.hidden or self.question.statistics):
            return self._counts()
        if not self.hidden:
            self._require_bins(self.planning.contributions().counts)
        plan_question = PlanQuestion(suggestions=not self.question.options.force)
        plan, counts = self.planning.plan(self.question.options.epsilon, plan_question)
        earlier = earlier_release(
            self.curator, self.there, self.occasion.data_version, self.there.grid, plan.allocation
        )
        if self.question.explain:
            return self._explained(counts, plan, earlier)
        if earlier is not None:
            note = f"release {earlier} answers this question of this data: nothing was charged"
            return self._answered(self.curator.load(earlier), counts, NOTHING, note)
        release = self._charged(plan, counts)
        by = "" if self.analyst is None else f" as {self.analyst.name}"
        whose = "of every possible vehicle, here or not" if self.hidden else "of any vehicle"
        loss = f"{plan.loss.kind.quantity} {plan.loss}"
        note = f"charged{by}: at most {loss} {whose}, kept as release {release.id}"
        return self._answered(release, counts, plan.loss, note)

    def _require_bins(self, counts: Counts) -> None:
        """Raise UsageError, with a line that would work, when no hexagon can have a number."""
        fewest = self.there.map.min_vehicles
        most = int(counts.users_per_bin.max(initial=0))
        if most >= fewest:
            return
        if most:
            options = replace(self.question.options, min_vehicles=most)
            line = _offer(replace(self.question, options=options), self.config)
            raise UsageError(
                "no hexagon has so many vehicles",
                got=f"at most {most}, where {fewest} are needed",
                todo=f"this would work: {line}",
            )
        raise UsageError(
            "no record meets the conditions",
            got=self.there.grid.selection.in_words(),
            todo="ask for more hours, days or places; nothing was charged",
        )

    def _counts(self) -> Answered | Explanation:
        counts = self.planning.contributions().counts
        if self.question.explain:
            return self._explained(counts, None, None)
        rows = rows_of(self.question, self.occasion.grid, counts, None, self.there.map.display_unit)
        notes = (*self.question.remarks, f"{COUNTS_NOTE}; nothing was charged")
        return Answered(rows, None, NOTHING, False, notes, self.there.grid.zones)

    def _explained(self, counts: Counts, plan: Plan | None, earlier: str | None) -> Explanation:
        remaining: Loss | None = None
        if self.analyst is not None and plan is not None:
            contributions = self.planning.contributions()
            paying = contributions.vehicle[plan.allocation.event.loss_per_user > 0]
            least = vault_analysts.left(self.curator.vault, paying, self.analyst)
            budget = self.analyst.budget
            remaining = type(budget)(int(least.min(initial=budget.pico)))
        selection = self.there.grid.selection.in_words()
        unit = self.there.map.display_unit
        text = replace(self.question, explain=False).to_sql(self.config)
        return explained(text, selection, counts, plan, earlier, remaining, unit)

    def _charged(self, plan: Plan, counts: Counts) -> Release:
        force = self.question.options.force
        contributions = self.planning.contributions()
        # what cannot be paid is said first: no other wording would help
        at, loss = self.occasion.created_at, plan.allocation.event.loss_per_user
        vault = self.curator.vault
        vault_ledger.require_budget(vault, contributions.vehicle, loss, self.there.policy, at)
        if self.analyst is not None:
            vault_analysts.require_budget(vault, contributions.vehicle, loss, self.analyst)
        if plan.verdict.refused and not force:
            raise self._too_little(plan)
        return self.curator.release(
            plan.allocation,
            contributions,
            self.there.policy,
            lambda name, before: specify(self.occasion, plan.allocation, counts, name, before),
            force=force,
            analyst=self.analyst,
        )

    def _answered(self, release: Release, counts: Counts, charged: Loss, note: str) -> Answered:
        rows = rows_of(self.question, self.there.grid, counts, release, self.there.map.display_unit)
        notes = [note, *self.question.remarks]
        if any(column.kind.by_rank for column in self.question.columns):
            notes.append(RANKS_NOTE.format(level=f"{100 * release.interval_level:g}"))
        if not self.question.by_cell:
            notes.append("one number for the whole city: for the hexagon that holds all of it")
        withheld = int(np.isnan(next(iter(release.estimates.values())).value).sum())
        if withheld:
            bins = "1 bin is" if withheld == 1 else f"{withheld} bins are"
            notes.append(f"{bins} withheld: fewer than {release.min_vehicles} vehicles")
        if any(column.kind.counts for column in self.question.columns):
            notes.append(NOISY_COUNTS if self.hidden else COUNTS_NOTE)
        return Answered(rows, release, charged, not charged.pico, tuple(notes), self.there.grid.zones)

    def _too_little(self, plan: Plan) -> UninformativeReleaseError:
        """The refusal of an answer that would say too little, with the same question that would be answered.

        The same question takes more epsilon, or force where not every vehicle can pay that. What other maps
        would pass for this epsilon is told in words.
        """
        found, question = plan.suggestions, self.question
        options = replace(question.options, force=True)
        if found is not None and found.epsilon is not None:
            needed = PureDP.of(f"{found.epsilon:.12f}")
            if self.hidden or needed <= plan.budget_left:
                options = replace(question.options, epsilon=needed)
        line = _offer(replace(question, options=options), self.config)
        others = []
        if found is not None and question.by_cell and found.resolution is not None:
            others.append(f"h3({found.resolution})")
        if found is not None and found.slot_kind is not None:
            others.append(f"slot('{found.slot_kind.value}')")
        told = f"; or, for this epsilon, another question: {' or '.join(others)}" if others else ""
        bound, unit = plan.allocation.request.bound, plan.display_unit
        return uninformative_error(plan.verdict, bound, f"{WORKS}{line}{told}", what="answer", shown=unit)
