"""The ledger in the vault: entries, personal accounts, what the store promises, what each analyst spent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import overload

import numpy as np

from trafficdp._durable import new_token
from trafficdp.arrays import IntArray
from trafficdp.errors import AnalystBudgetError, UsageError
from trafficdp.privacy import budget
from trafficdp.privacy.ledger import LedgerRow, accounts_hash, append, check_chain
from trafficdp.privacy.loss import LOSSES, Loss
from trafficdp.store.store_files import EPOCH, damaged_store, microseconds, registered, script
from trafficdp.store.vault import Vault


def ledger_rows(vault: Vault, after: int = 0) -> list[LedgerRow]:
    """Return the entries of the ledger after number ``after``, in order; their chain of hashes is checked.

    Raises StoreDamagedError where the chain is broken.
    """
    result = _rows(vault, "WHERE sequence > ? ORDER BY sequence", [after])
    check_chain(result, Entries(vault)[after - 1] if after else None)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class Entries(Sequence[LedgerRow]):
    """The ledger as it lies in the vault, read entry by entry and not checked: place n has number n + 1."""

    vault: Vault

    def __len__(self) -> int:
        return self.vault.number("SELECT coalesce(max(sequence), 0) FROM ledger")

    @overload
    def __getitem__(self, place: int) -> LedgerRow: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[LedgerRow]: ...
    def __getitem__(self, place: int | slice) -> LedgerRow | Sequence[LedgerRow]:
        if isinstance(place, slice):
            return ledger_rows(self.vault)[place]
        found = _rows(self.vault, "WHERE sequence = ?", [place + 1])
        if not found:
            raise damaged_store("the ledger's chain is broken", got=f"no entry at number {place + 1}")
        return found[0]


_CHARGES = """WITH charges AS (
    FROM ledger WHERE entry LIKE '%"kind":"charge"%' OR entry LIKE '%"kind":"stream"%'
) """


def promises(vault: Vault) -> list[LedgerRow]:
    """Return the ledger entries that state or change the store's promise, in order.

    None before the first ingest or charge. Raises StoreDamagedError where the newest was altered, and for a
    ledger without one.
    """
    if vault.promises is None:
        rows = _rows(vault, "WHERE contains(entry, ?) ORDER BY sequence", [f'"kind":"{budget.KIND}"'])
        for row in rows[-1:]:
            check_chain([row], Entries(vault)[row.sequence - 2] if row.sequence > 1 else None)
        if not rows and newest_entry(vault) is not None:
            raise damaged_store(
                "the ledger does not say what the store promises", expected="a promise at its first entry"
            )
        # nobody else writes while it is open
        vault.promises = rows
    return vault.promises


def _rows(vault: Vault, which: str, parameters: Sequence[object] = ()) -> list[LedgerRow]:
    """Return entries of the ledger; ``which`` and in which order says the end of a SELECT."""
    found = vault.run(f"SELECT sequence, entry, head_hash FROM ledger {which}", parameters)  # noqa: S608
    return [LedgerRow(int(sequence), str(entry), str(head)) for sequence, entry, head in found]


def newest_entry(vault: Vault) -> LedgerRow | None:
    """Return the newest entry of the ledger, None in a new store."""
    found = _rows(vault, "ORDER BY sequence DESC LIMIT 1")
    return found[0] if found else None


def add_entry(vault: Vault, facts: Mapping[str, object]) -> LedgerRow:
    """Append an entry with ``facts`` to the ledger (inside the caller's transaction) and return it."""
    if facts["kind"] == budget.KIND:
        vault.promises = None
    row = append(newest_entry(vault), facts, new_token())
    vault.run("INSERT INTO ledger VALUES (?, ?, ?)", [row.sequence, row.entry, row.head_hash])
    return row


def spent(
    vault: Vault, vehicle: IntArray, window: budget.Window | None = None, *, analyst: str | None = None
) -> IntArray:
    """Return the loss that each of ``vehicle`` (n,) was charged in ``window``, shape (n,); None: ever.

    With ``analyst``, a name, and no window: what it was ever charged for questions by that one. Private. In
    whole numbers of 10^-12 of the store's kind of loss; 0 for a vehicle without charges.
    """
    if window is None or not window.months:
        known, losses = _columns(vault, _sums(vault) + _SPENT, [analyst])
    else:
        with _sums_by_month(vault, window.time_zone) as sums:
            known, losses = _columns(vault, sums + _SPENT_IN_MONTHS, [window.months])
    if not len(known):
        return np.zeros(len(vehicle), dtype=np.int64)
    place = np.minimum(np.searchsorted(known, vehicle), len(known) - 1)
    return np.where(known[place] == vehicle, losses[place], 0).astype(np.int64)


def require_budget(
    vault: Vault, vehicle: IntArray, loss: IntArray, policy: budget.BudgetPolicy, at: datetime
) -> None:
    """Raise InsufficientBudgetError unless every vehicle may pay its ``loss`` under ``policy``.

    ``vehicle`` and ``loss`` have shape (n,), losses in 10^-12; ``at`` decides on years and months. Call it
    inside the transaction that charges. Where the calendar matters, raises UsageError for an instant before
    that of a charge in the ledger: a clock that was set back would open an old budget.
    """
    if policy.periodic:
        newest = _newest(vault, policy.time_zone, default=at)
        if at < newest:
            raise UsageError(
                "the clock is behind the ledger, and the budget follows the calendar",
                got=at.isoformat(),
                expected=f"not before {newest.isoformat()}, when something was charged",
                todo="set the computer's clock",
            )
    windows = policy.windows(at)
    shared = policy.relation.hides_presence
    spent_in = [spent(vault, vehicle, window) for window in windows]
    budget.check_windows(windows, spent_in, loss, shared=shared)


def largest_spent_in(vault: Vault, window: budget.Window) -> int:
    """Return the most that any vehicle was charged in ``window``, in 10^-12 of the store's kind of loss."""
    largest = f"SELECT coalesce(max(loss_pico), 0) FROM ({_SPENT_IN_MONTHS})"  # noqa: S608 - ours
    with _sums_by_month(vault, window.time_zone) as sums:
        return vault.number(sums + largest, [window.months])


def _instants(vault: Vault) -> dict[int, datetime]:
    """Return when each charge was made, by its sequence."""
    rows = vault.run(_CHARGES + "FROM charges SELECT sequence, entry ->> 'at' ORDER BY sequence")
    return {int(sequence): datetime.fromisoformat(at) for sequence, at in rows}


def add_charges(
    vault: Vault, sequence: int, vehicle: IntArray, loss: IntArray, analyst: str | None = None
) -> None:
    """Write what every vehicle pays for the charge ``sequence`` (inside the caller's transaction).

    ``vehicle`` and ``loss`` have shape (n,), losses in 10^-12; ``analyst`` is the name of who asked.
    """
    paying = loss > 0
    import pyarrow as pa

    kept, zone = _sums_are_kept(vault), _calendar(vault)
    months_kept = zone is not None and _months_are_kept(vault, zone)
    charges = pa.table({"vehicle_id": vehicle[paying], "loss_pico": loss[paying]})
    with registered(vault.connection, "incoming_charges", charges):
        vault.run(
            "INSERT INTO vehicle_charges SELECT $sequence, vehicle_id, loss_pico FROM incoming_charges",
            {"sequence": sequence},
        )
        if zone is not None and not months_kept:
            _add_up_months(vault, zone)
        elif zone is not None and len(charges):
            at = datetime.fromisoformat(str(Entries(vault)[sequence - 1].facts["at"]))
            of = {"time_zone": zone, "month": budget.month_of(at, zone), "at_us": microseconds(at)}
            for statement in _ADD_TO_MONTH:
                vault.run(statement, of)
        if not kept:
            # all of them anew
            vault.make_tables("spending")
            vault.run("DELETE FROM spending")
            vault.run("DELETE FROM charge_totals")
            vault.run("INSERT INTO charge_totals " + script("statements/charge_totals"))
            vault.run("INSERT INTO spending " + script("statements/spending"))
        elif len(charges):
            for asked_by in {None, analyst}:
                for statement in _ADD:
                    vault.run(statement, {"analyst": asked_by})
            vault.run(
                "INSERT INTO charge_totals "
                "SELECT $sequence, $analyst, count(*), max(loss_pico) FROM incoming_charges",
                {"sequence": sequence, "analyst": analyst},
            )


# Sums of the accounts, so that what is left need not be added up from the first charge on. They are written
# in the transaction of the charge itself, and not read where they count other rows than there are: a version
# of trafficdp that does not know them may have charged.

_SPENT = "SELECT vehicle_id, loss_pico FROM spending WHERE analyst IS NOT DISTINCT FROM ? ORDER BY ALL"
_ADD = (
    """INSERT INTO spending SELECT CAST($analyst AS VARCHAR), vehicle_id, 0
    FROM incoming_charges AS incoming
    WHERE vehicle_id NOT IN (SELECT vehicle_id FROM spending WHERE analyst IS NOT DISTINCT FROM $analyst)""",
    """UPDATE spending SET loss_pico = spending.loss_pico + incoming.loss_pico
    FROM incoming_charges AS incoming
    WHERE spending.vehicle_id = incoming.vehicle_id AND spending.analyst IS NOT DISTINCT FROM $analyst""",
)


def _sums_are_kept(vault: Vault) -> bool:
    counted = "SELECT (SELECT count(*) FROM vehicle_charges) - coalesce(sum(vehicles), 0) FROM charge_totals"
    if not vault.sums_are_kept and vault.has_table("spending"):
        # nobody else writes while it is open
        vault.sums_are_kept = vault.number(counted) == 0
    return vault.sums_are_kept


def _sums(vault: Vault) -> str:
    """Return what a query on spending and charge_totals begins with: nothing where they are kept."""
    if _sums_are_kept(vault):
        return ""
    spending, of_charges = (script(f"statements/{name}") for name in ("spending", "charge_totals"))
    return f"WITH spending AS ({spending}), charge_totals AS ({of_charges}) "


# Where ceilings follow the calendar also the sums of every month, in the time zone of the store's promise.
# They are added up anew when that changes.

_SPENT_IN_MONTHS = """SELECT vehicle_id, CAST(sum(loss_pico) AS BIGINT) AS loss_pico FROM spending_a_month
    WHERE starts_with(month, ?) GROUP BY vehicle_id ORDER BY vehicle_id"""
_ADD_TO_MONTH = (
    """INSERT INTO spending_a_month SELECT $time_zone, $month, vehicle_id, 0, 0, $at_us
    FROM incoming_charges AS incoming
    WHERE vehicle_id NOT IN (SELECT vehicle_id FROM spending_a_month WHERE month = $month)""",
    """UPDATE spending_a_month SET
        loss_pico = spending_a_month.loss_pico + incoming.loss_pico,
        charges = charges + 1,
        newest_us = greatest(newest_us, $at_us)
    FROM incoming_charges AS incoming
    WHERE spending_a_month.vehicle_id = incoming.vehicle_id AND month = $month AND time_zone = $time_zone""",
)


def _calendar(vault: Vault) -> str | None:
    """Return the time zone whose calendar ceilings of the store's promise follow, None where none does."""
    if not (found := promises(vault)):
        return None
    policy = budget.Promise.from_facts(found[-1].facts).policy
    return policy.time_zone if policy.periodic else None


def _months_are_kept(vault: Vault, time_zone: str) -> bool:
    if not vault.has_table("spending_a_month"):
        return False
    counted = """SELECT (SELECT count(*) FROM vehicle_charges) - (
        SELECT coalesce(sum(charges), 0) FROM spending_a_month WHERE time_zone = ?)"""
    return vault.number(counted, [time_zone]) == 0


@contextmanager
def _sums_by_month(vault: Vault, time_zone: str) -> Iterator[str]:
    """Give the block what a query on spending_a_month begins with: nothing where it is kept."""
    if _months_are_kept(vault, time_zone):
        yield ""
    else:
        with _charge_months(vault, time_zone):
            yield f"WITH spending_a_month AS ({script('statements/spending_a_month')}) "


def _newest(vault: Vault, time_zone: str, default: datetime) -> datetime:
    """Return when the newest charge was made."""
    if not _months_are_kept(vault, time_zone):
        return max(_instants(vault).values(), default=default)
    newest_us = vault.number("SELECT coalesce(max(newest_us), -1) FROM spending_a_month")
    return default if newest_us < 0 else EPOCH + timedelta(microseconds=newest_us)


@contextmanager
def _charge_months(vault: Vault, time_zone: str) -> Iterator[None]:
    """Let statements of the block read when each charge was made, as ``charge_months``."""
    import pyarrow as pa

    instants = _instants(vault)
    months = {
        "sequence": pa.array(instants, pa.int64()),
        "time_zone": pa.array([time_zone] * len(instants), pa.string()),
        "month": pa.array([budget.month_of(at, time_zone) for at in instants.values()], pa.string()),
        "at_us": pa.array(map(microseconds, instants.values()), pa.int64()),
    }
    with registered(vault.connection, "charge_months", pa.table(months)):
        yield


def _add_up_months(vault: Vault, time_zone: str) -> None:
    """Write the sums of every month anew (inside the caller's transaction)."""
    vault.make_tables("spending")
    vault.run("DELETE FROM spending_a_month")
    with _charge_months(vault, time_zone):
        vault.run("INSERT INTO spending_a_month " + script("statements/spending_a_month"))


def check_accounts(vault: Vault, ledger: Sequence[LedgerRow], after: int = 0) -> None:
    """Raise StoreDamagedError unless every vehicle's account is what the entries of ``ledger`` say.

    ``ledger`` holds the entries from ``after`` + 1 on; what was charged by earlier ones is not looked at.

    The chain guards the entries, and each entry guards the accounts of its charge. A stream charges every
    vehicle the same, when its first record is taken.
    """
    later = "SELECT sequence, vehicle_id, loss_pico FROM vehicle_charges WHERE sequence > ? ORDER BY ALL"
    sequence, vehicle, loss = _columns(vault, later, [after])
    charged = [row for row in ledger if row.facts["kind"] in ("charge", "stream")]
    for row in charged:
        here = slice(*np.searchsorted(sequence, [row.sequence, row.sequence + 1]))
        if row.facts["kind"] == "charge":
            same = accounts_hash(vehicle[here], loss[here]) == row.facts["accounts_sha256"]
        else:
            same = bool(np.all(loss[here] == row.facts["epsilon_pico"]))
        if not same:
            raise damaged_store(
                "the vehicles' accounts are not those of the ledger",
                got=f"other accounts for the {row.facts['kind']} at entry {row.sequence}",
            )
    if not set(np.unique(sequence).tolist()) <= {row.sequence for row in charged}:
        raise damaged_store("vehicles' accounts name a charge that is not in the ledger")
    if after:
        return
    # and the sums that are kept are those of the accounts
    zone, kept = _calendar(vault), {}
    if _sums_are_kept(vault):
        merged = "SELECT sequence, any_value(analyst), sum(vehicles), max(largest_pico) FROM charge_totals "
        kept = {"FROM spending": "spending", f"{merged} GROUP BY sequence": "charge_totals"}
    with ExitStack() as months:
        if zone is not None and _months_are_kept(vault, zone):
            months.enter_context(_charge_months(vault, zone))
            kept["FROM spending_a_month"] = "spending_a_month"
        for sums, name in kept.items():
            right = script(f"statements/{name}")
            wrong = f"""WITH kept AS ({sums}), charged AS ({right}) SELECT count(*) FROM (
                (FROM kept EXCEPT ALL FROM charged) UNION ALL (FROM charged EXCEPT ALL FROM kept))"""  # noqa: S608
            if vault.number(wrong):
                raise damaged_store("the sums of the vehicles' accounts are not those of their charges")


def charges_of(vault: Vault, sequence: int) -> tuple[IntArray, IntArray]:
    """Return (vehicles, losses in 10^-12) of the charge ``sequence``, sorted by vehicle, shape (n,) each."""
    charges = "SELECT vehicle_id, loss_pico FROM vehicle_charges WHERE sequence = ? ORDER BY vehicle_id"
    vehicle, loss = _columns(vault, charges, [sequence])
    return vehicle, loss


def _columns(vault: Vault, sql: str, parameters: Sequence[object]) -> list[IntArray]:
    """Return the columns of what the SQL query ``sql`` returns, whole numbers, shape (n,) each."""
    return [column.to_numpy().astype(np.int64) for column in vault.query(sql, parameters).columns]


@dataclass(frozen=True, slots=True)
class Totals:
    """What was spent by some charges, in 10^-12 of the store's kind of loss.

    ``largest`` is the most that any vehicle spent by all of them; ``sum_of_maxima`` adds up, over charges,
    the most that any vehicle paid.
    """

    largest: int
    sum_of_maxima: int


def totals(vault: Vault, analyst: str | None = None) -> Totals:
    """Return the sums over all charges, or over those for the questions of ``analyst``, a name."""
    both = """SELECT
        (SELECT coalesce(max(loss_pico), 0) FROM spending WHERE analyst IS NOT DISTINCT FROM $analyst),
        (SELECT coalesce(CAST(sum(most) AS BIGINT), 0) FROM (
            SELECT max(largest_pico) AS most FROM charge_totals
            WHERE $analyst IS NULL OR analyst = $analyst GROUP BY sequence))"""
    ((largest, maxima),) = vault.run(_sums(vault) + both, {"analyst": analyst})
    return Totals(int(largest), int(maxima))


# What a store promises: entries of its ledger, the first of all and those that change it.


RAISE = 'run `trafficdp budget raise --reason "..."`, which every later release shows'
NEW_STORE = "restore the configuration, or ingest everything into a new store"


def promise_in_force(vault: Vault) -> budget.Promise:
    """Return what the store promises now; raise UsageError where nothing was promised yet."""
    if not (found := promises(vault)):
        raise UsageError("the store has promised nothing yet", todo="run `trafficdp ingest FILE...` first")
    return budget.Promise.from_facts(found[-1].facts)


def promise_changes(vault: Vault) -> tuple[budget.BudgetChange, ...]:
    """Return every change of the store's promise, in order."""
    return budget.changes_in(promises(vault))


def require_promise(vault: Vault, configured: budget.Promise) -> None:
    """Raise UsageError, showing both, where ``configured`` differs from what the store promises."""
    found = promise_in_force(vault).changes_to(configured) if promises(vault) else ()
    if not found:
        return
    for_life = [each for each in found if each.what in budget.FOR_LIFE]
    told = for_life or found
    raise UsageError(
        "the configuration says otherwise than the store promises",
        got=", ".join(f"{each.what}: {each.after}" for each in told),
        expected=", ".join(f"{each.what}: {each.before}" for each in told),
        todo=NEW_STORE if for_life else f"restore the configuration, or {RAISE}",
    )


def settle_promise(vault: Vault, configured: budget.Promise, at: datetime) -> budget.Promise:
    """Return the store's promise; the first call writes ``configured`` as that promise.

    Later calls raise UsageError where ``configured`` says otherwise. Call it inside the transaction that
    ingests or charges.
    """
    require_promise(vault, configured)
    if not promises(vault):
        add_entry(vault, _promise_facts(configured, at))
    return promise_in_force(vault)


def replace_promise(vault: Vault, configured: budget.Promise, reason: str, at: datetime) -> LedgerRow:
    """Make ``configured`` the store's promise from now on (inside the caller's transaction).

    ``reason`` is published. Raises UsageError where nothing changes, where nothing was promised yet, and for
    another neighbouring relation or kind of loss.
    """
    changed = promise_in_force(vault).changes_to(configured)
    if not changed:
        raise UsageError(
            "the configuration says what the store promises", todo="change the configuration first"
        )
    if any(each.what in budget.FOR_LIFE for each in changed):
        require_promise(vault, configured)
    return add_entry(vault, {**_promise_facts(configured, at), "reason": reason})


def _promise_facts(configured: budget.Promise, at: datetime) -> Mapping[str, object]:
    return {"kind": budget.KIND, "at": at.replace(microsecond=0).isoformat(), **configured.facts()}


# What each analyst has spent: charges carry the name of the role that asked.


@dataclass(frozen=True, slots=True)
class AnalystSpending:
    """What one role has spent: its charges, the most any vehicle lost by them, the sum of their maxima."""

    name: str
    charges: int
    largest_spent: Loss
    sum_of_maxima: Loss


def left_for_analyst(vault: Vault, vehicle: IntArray, analyst: budget.Analyst) -> IntArray:
    """Return what each of ``vehicle`` (n,) may still lose by questions of ``analyst``, shape (n,).

    Private. In 10^-12 of the store's kind of loss, at least 0.
    """
    return np.maximum(analyst.budget.pico - spent(vault, vehicle, analyst=analyst.name), 0)


def require_analyst_budget(vault: Vault, vehicle: IntArray, loss: IntArray, analyst: budget.Analyst) -> None:
    """Raise AnalystBudgetError unless every vehicle may pay its ``loss`` by a question of ``analyst``.

    ``vehicle`` and ``loss`` have shape (n,), losses in 10^-12. Call it inside the transaction that charges.
    Spending exactly the budget succeeds.
    """
    remaining = left_for_analyst(vault, vehicle, analyst)
    excess = np.where(loss > 0, loss - remaining, np.iinfo(np.int64).min)
    if excess.size and int(excess.max()) > 0:
        worst, loss_of = int(np.argmax(excess)), type(analyst.budget)
        raise AnalystBudgetError(
            analyst=analyst.name,
            remaining=loss_of(int(remaining[worst])).exact,
            requested=loss_of(int(loss[worst])).exact,
            quantity=analyst.budget.kind.quantity,
            shared=promise_in_force(vault).policy.relation.hides_presence,
        )


def analyst_spending(vault: Vault) -> list[AnalystSpending]:
    """Return what each analyst who was ever charged has spent, sorted by name. No vehicle is named."""
    asked = """FROM charges SELECT entry ->> 'analyst' AS name, count(*)
        WHERE contains(entry, '"analyst":') GROUP BY name ORDER BY name"""
    found = []
    for name, charges in vault.run(_CHARGES + asked):
        loss_of = LOSSES[promise_in_force(vault).policy.kind]
        sums = totals(vault, analyst=name)
        largest, maxima = loss_of(sums.largest), loss_of(sums.sum_of_maxima)
        found.append(AnalystSpending(name, charges, largest, maxima))
    return found
