"""A statement with priced questions: tried without rows, priced, charged once, arranged by DuckDB.

A question is answered by the release that answered it before, whatever its arrangement; two mentions of one
aggregate are one measurement. The arrangement runs where only what is released and the answer can be read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from sqlglot import exp

from trafficdp.arrays import IntArray
from trafficdp.config.settings import Config
from trafficdp.errors import DataError, UninformativeReleaseError, UsageError
from trafficdp.model import Counts
from trafficdp.privacy.budget import Analyst, Promise
from trafficdp.privacy.loss import Loss, PureDP
from trafficdp.privacy.release import Release
from trafficdp.query import answer as query_answer
from trafficdp.query.arrangement import ARRANGING, sql_of
from trafficdp.query.dialect import LONGEST_REFUSAL, WORDS, End, Priced, RefusedError
from trafficdp.query.question import Question, read_question
from trafficdp.query.statement import PricedStatement, read_statement
from trafficdp.release import results
from trafficdp.release.curator import Curator
from trafficdp.release.knowledge import earlier_release
from trafficdp.release.planning import Planning
from trafficdp.release.results import Plan, PlanQuestion
from trafficdp.release.specification import ReleaseContext
from trafficdp.store import vault_fixes, vault_ledger
from trafficdp.store.analyst import AnalystSession

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
_AROUND = "around the priced SELECT"
_SAID = {
    "Referenced column": "there is no such column",
    "Scalar Function with name": "there is no such function",
    "Table with name": "there is no such table",
    "No function matches": "no function takes such values",
}
"""What errors of DuckDB are in our words, by how they begin."""


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


@dataclass(frozen=True)
class PricedQuery:
    """A statement with priced questions, each once, by one analyst (None: the curator)."""

    statement: PricedStatement
    questions: tuple[Question, ...]
    config: Config
    analyst: Analyst | None

    @classmethod
    def of(cls, text: str, config: Config, analyst: str | None, store: Path) -> PricedQuery:
        """Return what ``text`` asks, with names of places from the map of ``store``.

        Raises RefusedError for what is no such statement, and as ``role_of``.
        """
        statement = read_statement(text)
        names = partial(query_answer.names_of_places, config, store)
        questions = tuple(
            read_question(part, config, names, f"answer {number}")
            for number, part in enumerate(statement.parts, 1)
        )
        noisy = config.relation.hides_presence or any(question.statistics for question in questions)
        role = role_of(config, analyst, needed=noisy and not statement.explain)
        return cls(statement, questions, config, role)

    @property
    def arrangement(self) -> str:
        """The statement with each priced SELECT replaced by the SELECT that DuckDB runs on its answer."""
        pieces, place = [], 0
        for part, question in zip(self.statement.parts, self.questions, strict=True):
            pieces += [self.statement.text[place : part.start], sql_of(question.arrangement)]
            place = part.end
        return "".join([*pieces, self.statement.text[place:]])

    def try_arrangement(self, session: AnalystSession) -> None:
        """Run the arrangement on made-up answers without and with a row, so that errors come before a charge.

        Raises RefusedError, which names the clause.
        """
        for rows in (0, 1):
            for question in self.questions:
                session.keep(question.table, query_answer.made_up_rows(question, rows))
                try:
                    found = session.run(sql_of(question.arrangement)).num_rows
                except (UsageError, DataError) as error:
                    clause, works = _failing_clause(session, question)
                    raise self._refusal(error, clause, works) from None
                if found > rows:
                    raise RefusedError(
                        "an aggregate of answered numbers needs a window", "OVER ()", clause="SELECT"
                    )
        try:
            session.run(self.arrangement)
        except (UsageError, DataError) as error:
            raise self._refusal(error, _AROUND, "the priced SELECT by itself") from None

    def _refusal(self, error: UsageError | DataError, clause: str, works: str) -> RefusedError:
        """Return DuckDB's error without what the asker wrote: a vehicle may be written there."""
        tokens = Priced().tokenize(self.statement.text)
        own = {
            word.upper()
            for token in tokens
            if token.text.upper() not in WORDS
            for word in re.findall(r"\w{3,}", token.text)
        }
        said = re.split(r"[!\n]|Candidate", str(error.what))[0]
        said = next((ours for start, ours in _SAID.items() if said.startswith(start)), said)
        said = re.sub(r"\"[^\"]*\"?|'[^']*'?|(?<=name )\S+", "...", said)

        def kept(word: re.Match[str]) -> str:
            return "..." if word[0].upper() in own or any(each.isdigit() for each in word[0]) else word[0]

        said = re.sub(r"\w+", kept, said).strip()
        works = works if len(works) <= 50 else f"{works[:47]}..."
        room = LONGEST_REFUSAL - len(f"{clause}: ; try {works}")
        return RefusedError(said if len(said) <= room else f"{said[: room - 3]}...", works, clause=clause)

    def answer(
        self, curator: Curator, at: datetime, session: AnalystSession
    ) -> query_answer.Answered | query_answer.Explanation:
        """Return the answer, or the explanation that is asked for instead; ``session`` arranges it.

        The same question of the same data again is answered from its first release, for nothing. Raises
        UninformativeReleaseError, InsufficientBudgetError and AnalystBudgetError before anything is charged.
        """
        self.try_arrangement(session)
        found: list[_Measurement] = []
        places: list[int] = []
        for question in self.questions:
            same = (number for number, each in enumerate(found) if each.answers(question, self.config))
            places.append(next(same, len(found)))
            if places[-1] == len(found):
                found.append(_Measurement.planned(question, self.config, curator, at))
        new = [each for each in found if each.plan is not None and each.earlier_release is None]
        vehicle, loss = _together(new)
        if self.statement.explain:
            return self._explained(found, new, vehicle, loss, curator)
        if new:
            # what cannot be paid is said first: no other wording would help
            vault_ledger.require_budget(curator.vault, vehicle, loss, self.config.policy, at)
            if self.analyst is not None:
                vault_ledger.require_analyst_budget(curator.vault, vehicle, loss, self.analyst)
            for each in new:
                each.require_utility()
        loss_of = type(new[0].require_plan().loss) if new else PureDP
        notes: list[str] = []
        releases = [each.release(curator, self.analyst, notes) for each in found]
        for question, place in zip(self.questions, places, strict=True):
            session.keep(question.table, found[place].rows(question, releases[place]))
            notes += found[place].notes(question, releases[place])
        kept = tuple(release for release in releases if release is not None)
        charged = loss_of(int(loss.max(initial=0)))
        rows = self._arranged(session, kept)
        return query_answer.Answered(rows, kept, charged, tuple(dict.fromkeys(notes)), self.config.grid.zones)

    def _arranged(self, session: AnalystSession, kept: Sequence[Release]) -> pa.Table:
        try:
            return session.run(self.arrangement)
        except (UsageError, DataError) as error:
            names = " and ".join(release.id for release in kept)
            works = f"another arrangement: {names} keeps it, free" if names else "another arrangement"
            raise self._refusal(error, "SELECT", works) from None

    def _explained(
        self,
        found: list[_Measurement],
        new: list[_Measurement],
        vehicle: IntArray,
        loss: IntArray,
        curator: Curator,
    ) -> query_answer.Explanation:
        left: Loss | None = None
        priced = [each for each in found if each.plan is not None]
        if self.analyst is not None and priced:
            everyone, all_losses = _together(priced)
            least = vault_ledger.left_for_analyst(curator.vault, everyone[all_losses > 0], self.analyst)
            budget = self.analyst.budget
            left = type(budget)(int(least.min(initial=budget.pico)))
        together: Loss | None = None
        if len(found) > 1 and priced:
            together = type(priced[0].require_plan().loss)(int(loss.max(initial=0)))
        plans = [
            query_answer.PricedPlan(
                each.question.to_sql(self.config),
                each.there.grid.selection.in_words(),
                each.counts,
                each.plan,
                each.earlier_release,
            )
            for each in found
        ]
        return query_answer.explanation_of(plans, together, left)


def _together(measurements: Sequence[_Measurement]) -> tuple[IntArray, IntArray]:
    """Return the vehicles of all measurements, each once, and the summed loss of each in 10^-12."""
    none = np.zeros(0, np.int64)
    vehicle = np.concatenate([none, *(each.vehicles for each in measurements)])
    loss = np.concatenate(
        [none, *(each.require_plan().allocation.event.loss_per_user for each in measurements)]
    )
    found, place = np.unique(vehicle, return_inverse=True)
    total = np.zeros(len(found), dtype=np.int64)
    np.add.at(total, place, loss)
    return found, total


def _failing_clause(session: AnalystSession, question: Question) -> tuple[str, str]:
    """Return the first clause with which DuckDB cannot run an arrangement, and what such a clause may be."""
    arrangement, tried = question.arrangement, question.arrangement.copy()
    columns = [each.name for each in query_answer.answer_columns(question) if each.end is End.VALUE]
    works = {"where": f"{columns[-1]} > 30", "order": columns[-1], "limit": "LIMIT 10", "offset": "OFFSET 10"}
    later = ("where", "distinct", "qualify", "order", "limit", "offset")
    for name in later:
        tried.set(name, None)
    for name in ("expressions", *later):
        part = arrangement.args.get(name)
        if isinstance(part, exp.Expr):
            tried.set(name, part.copy())
        try:
            session.run(sql_of(tried))
        except (UsageError, DataError):
            clause = "HAVING" if name == "where" else ARRANGING[name]
            return clause, works.get(name, ", ".join(columns))
    return "SELECT", ", ".join(columns)


@dataclass(frozen=True)
class _Measurement:
    """One question and its plan, made while the store is locked.

    ``there`` is the configuration whose map is the answer. ``promise`` is the store's, which no question
    changes. ``plan`` is None where public counts give the answer; ``earlier_release`` is the name of a
    release that already holds the answer, so that nothing is charged.
    """

    question: Question
    promise: Promise
    there: Config
    planning: Planning
    context: ReleaseContext
    counts: Counts
    plan: Plan | None
    earlier_release: str | None

    @classmethod
    def planned(cls, question: Question, config: Config, curator: Curator, at: datetime) -> _Measurement:
        """Return ``question`` with its plan and price at the time ``at``. Nothing is charged."""
        there = question.answer_config(config)
        planning = Planning(curator, there)
        version = vault_fixes.data_version(curator.vault)
        context = replace(
            results.context_of(there, curator.vault, version, there.grid, at),
            question=question.to_sql(config),
            catalogue=there.catalogue,
        )
        hidden, counts = there.relation.hides_presence, planning.contributions().counts
        if not (hidden or question.statistics):
            return cls(question, config.promise, there, planning, context, counts, None, None)
        if not hidden:
            _require_bins(counts, there)
        wish = PlanQuestion(suggestions=not question.options.force)
        plan = planning.plan(question.options.epsilon, wish)
        earlier = earlier_release(curator, version, there.grid, plan.allocation)
        return cls(question, config.promise, there, planning, context, counts, plan, earlier)

    def require_plan(self) -> Plan:
        """Return ``plan``; raise AssertionError where it is None, as public counts answer the question."""
        if self.plan is None:
            raise AssertionError("public counts need no plan")
        return self.plan

    @property
    def vehicles(self) -> IntArray:
        """The vehicles that pay, as numbers, shape (V,).

        Where nothing about a vehicle is public, one number stands for all and no record is read.
        """
        if self.there.relation.hides_presence:
            return np.zeros(1, np.int64)
        return self.planning.contributions().vehicle

    def answers(self, question: Question, config: Config) -> bool:
        """Return whether this measurement also holds the numbers of ``question``."""
        counted = not (config.relation.hides_presence or question.statistics)
        return counted == (self.plan is None) and question.answer_config(config) == self.there

    def require_utility(self) -> None:
        """Raise UninformativeReleaseError, saying what would pass, if the answer would be too inaccurate.

        By the plan's verdict, which is reached before anything is measured or charged. The option ``force``
        lets all pass.
        """
        plan, options = self.require_plan(), self.question.options
        verdict, found = plan.verdict, plan.suggestions
        if not verdict.refused or options.force:
            return
        works = "force = TRUE"
        if found is not None and found.epsilon is not None:
            needed = PureDP.of(f"{found.epsilon:.12f}")
            if self.there.relation.hides_presence or needed <= plan.budget_left:
                works = f"epsilon = {needed}"
        unit = verdict.statistic.unit(plan.display_unit)
        got, _ = verdict.in_words(unit, plan.in_display_unit(1.0, verdict.statistic))
        raise UninformativeReleaseError(
            "OPTIONS: the answer would be too inaccurate to publish", got=got, todo=f"try {works}"
        )

    def release(self, curator: Curator, analyst: Analyst | None, notes: list[str]) -> Release | None:
        """Return the release that holds the answer, charged now or made earlier; None for public counts.

        A sentence on the charge is added to ``notes``.
        """
        if self.plan is None:
            notes.append(f"{COUNTS_NOTE}; nothing was charged")
            return None
        if self.earlier_release is not None:
            found = self.earlier_release
            notes.append(f"release {found} answers this question of this data: nothing was charged")
            return curator.load(found)
        allocation = self.plan.allocation
        release = curator.release(
            allocation,
            self.planning.contributions(),
            self.promise,
            self.context,
            force=self.question.options.force,
            analyst=analyst,
        )
        by = "" if analyst is None else f" as {analyst.name}"
        hidden = self.there.relation.hides_presence
        whose = "of every possible vehicle, here or not" if hidden else "of any vehicle"
        loss = f"{self.plan.loss.kind.quantity} {self.plan.loss}"
        notes.append(f"charged{by}: at most {loss} {whose}, kept as release {release.id}")
        return release

    def notes(self, question: Question, release: Release | None) -> list[str]:
        """Return sentences for readers of the answer, whose numbers ``release`` holds (None: counts)."""
        notes = list(question.remarks)
        if release is None:
            return notes
        if any(kind.by_rank for kind in question.kinds):
            notes.append(RANKS_NOTE.format(level=f"{100 * release.request.interval_level:g}"))
        if not question.by_cell:
            notes.append("one number for the whole city: for the hexagon that holds all of it")
        withheld = int(np.isnan(next(iter(release.estimates.values())).value).sum())
        if withheld:
            bins = "1 bin is" if withheld == 1 else f"{withheld} bins are"
            notes.append(f"{bins} withheld: fewer than {release.request.min_vehicles} vehicles")
        if question.counts:
            notes.append(NOISY_COUNTS if self.there.relation.hides_presence else COUNTS_NOTE)
        return notes

    def rows(self, question: Question, release: Release | None) -> pa.RecordBatch:
        """Return the table of the numbers of ``question``."""
        grid = self.context.grid if release is None else self.there.grid
        return query_answer.answer_rows(question, grid, self.counts, release, self.there.map.display_unit)


def _require_bins(counts: Counts, there: Config) -> None:
    """Raise RefusedError when no hexagon can have a number."""
    most = int(counts.users_per_bin.max(initial=0))
    if most >= there.map.min_vehicles:
        return
    if most:
        raise RefusedError(
            f"no hexagon has {there.map.min_vehicles} vehicles",
            f"min_vehicles = {most}",
            clause="OPTIONS",
        )
    raise RefusedError("no record meets the conditions", "more hours, days or places", clause="WHERE")
