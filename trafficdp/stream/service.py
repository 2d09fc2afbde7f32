"""Records of a stream into running sums.

Two running sums are kept of every bin: of x, the clipped speed in steps 0..S (S = U/q), and, when the
variance is asked for, of y = x (S - x). Every node of their trees (``stream.tree``) carries
discrete Laplace noise, of scale B for x and S B for y. The second sum is free
(``two_moments``): if a record changes from x to x', |x - x'|/B + |y - y'|/(S B) <= S/B.

**Theorem.** Under REPLACE_USER_VALUES let the rule that accepts records depend on counts and times only, and
let ``nodes_used`` be the sum over the accepted records of vehicle l of the nodes that hold the element (one a
bin and step) the record is part of. Then everything ever published changes in probability by a factor of at
most exp(nodes_used * S / B) when all speeds of l change, however many bins and publications there are.
*Proof.* What is published is a function of the noisy nodes. Which nodes there are, and which records are in
which, is decided by counts and times. Changing l's speeds moves a node of x by at most the sum of |x - x'|
over l's records in it, and likewise y; so the density changes by at most exp(sum over nodes, and l's records
in them, of |x - x'|/B + |y - y'|/(S B)) <= exp(nodes_used * S/B). QED.

**The rule.** Every vehicle has an account of A = H M nodes, H the heights of the trees and M
``records_per_vehicle``. A record is accepted while what the account holds, with H (the most a record can
touch) reserved for each record whose step is still open, leaves H for it; when its step closes, its position
is known and the rest of the reserve goes back. So no account ever passes A, whatever comes: M records are
sure to be taken, and most vehicles have room for more. B = ceil(A S / epsilon), so A S / B <= epsilon
exactly.

**Which records count.** Records are taken in the order of arrival. Each meets the first rule that fits, and
every rule looks at times, identities and counts only, never at a speed:

==============  ========================================================================================
``outside``     its instant lies outside the horizon
``ahead``       its instant lies further ahead of the wall clock than ``LEAD_US`` (live only)
``late``        its step is over: the clock, the latest instant before it, has passed the end of the step by
                more than the lateness
``repeated``    its (vehicle, instant) was met before
``over_cap``    its vehicle has ``records_per_step`` accepted records in the step
``no_budget``   its vehicle cannot pay the stream's epsilon from what other releases have left it
``no_account``  its vehicle's account is used up (``stream.service``)
``accepted``    otherwise
==============  ========================================================================================

What is accepted, and what each step publishes, does not depend on how the records are cut into batches: a
batch is taken up to the record that ends a step, the step is closed, and only then the rest is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import BoolArray, IntArray
from trafficdp.bounding.arrays import rank_within
from trafficdp.errors import UsageError, integer_between
from trafficdp.measurement.laws import EntryIndex
from trafficdp.measurement.sets import Moments
from trafficdp.noise.source import LARGEST_SCALE, NoiseSource
from trafficdp.privacy.loss import PICO, PureDP
from trafficdp.stream.horizon import MINUTE_US, Horizon
from trafficdp.stream.tree import SignedCounterBank

LARGEST_RECORDS = 10**9


@dataclass(frozen=True, slots=True)
class Allowance:
    """Privacy budget of one vehicle over the whole stream, and the noise scales that keep to it.

    ``value_steps``: S. ``arity``, ``heights``: k and H of the trees. ``records_per_vehicle``: M, the records
    of a vehicle that are accepted in any case. ``products``: whether sums of x (S - x) are kept too.

    Raises UsageError for numbers out of range, or noise too large to be drawn exactly.
    """

    epsilon: PureDP
    value_steps: int
    arity: int
    heights: int
    records_per_vehicle: int
    products: bool

    def __post_init__(self) -> None:
        integer_between(1, 10**6, value_steps=self.value_steps)
        integer_between(3, 101, arity=self.arity)
        integer_between(1, 40, heights=self.heights)
        integer_between(1, LARGEST_RECORDS, records_per_vehicle=self.records_per_vehicle)
        if self.records_per_vehicle * self.value_steps**2 >= 1 << 61:
            raise UsageError(
                "sums of so many records of a vehicle could leave 64 bits",
                got=f"{self.records_per_vehicle} records of up to {self.value_steps} steps",
                expected="records times the square of the steps below 2^61",
                todo="ask for fewer records_per_vehicle or a larger speed_step",
            )
        largest = self.product_scale if self.products else self.mean_scale
        if largest > LARGEST_SCALE:
            raise UsageError(
                "noise of this size cannot be drawn exactly",
                got=f"a scale of {largest:.3g} steps",
                expected=f"at most {LARGEST_SCALE:.3g}",
                todo="ask for fewer records_per_vehicle, a larger epsilon or a larger speed_step",
            )

    @property
    def nodes_per_vehicle(self) -> int:
        """A = H M, the account of one vehicle: the most tree nodes that its records may be part of."""
        return self.heights * self.records_per_vehicle

    @property
    def mean_scale(self) -> int:
        """B = ceil(A S / epsilon), scale of the noise of sums of x, in steps."""
        return -(-self.nodes_per_vehicle * self.value_steps * PICO // self.epsilon.pico)

    @property
    def product_scale(self) -> int:
        """S B, scale of the noise of sums of x (S - x): S ``value_steps`` times B ``mean_scale``."""
        return self.value_steps * self.mean_scale

    def loss(self, nodes: int) -> PureDP:
        """Return the loss of a vehicle in ``nodes`` tree nodes: nodes S / B, rounded up."""
        return PureDP(-(-nodes * self.value_steps * PICO // self.mean_scale))


UNKNOWN = -1


class Numbering:
    """Numbers 64-bit integer keys 0, 1, 2, ... by first appearance; ``keys[i]`` is the key of number i."""

    def __init__(self, keys: IntArray | None = None) -> None:
        import pandas as pd

        self._index = pd.Index(np.zeros(0, dtype=np.int64) if keys is None else np.array(keys, np.int64))

    @property
    def keys(self) -> IntArray:
        """The keys in the order of their numbers, shape (n,)."""
        return np.asarray(self._index, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._index)

    def find(self, key: IntArray) -> IntArray:
        """Return the number of every key in ``key``, shape (n,); UNKNOWN (-1) for a key without a number."""
        return np.asarray(self._index.get_indexer(type(self._index)(key)), dtype=np.int64)

    def number(self, key: IntArray) -> IntArray:
        """Return the number of every key in ``key``, shape (n,), and number new keys on the way."""
        new = key[self.find(key) == UNKNOWN]
        if len(new):
            self._index = self._index.append(type(self._index)(new).unique())
        return self.find(key)


def pack(high: IntArray, low: IntArray) -> IntArray:
    """Return each pair as one key, ``high`` 2^32 + ``low``; both are from 0 to 2^31 - 1."""
    return np.asarray(high << 32 | low, dtype=np.int64)


def unpack(key: IntArray) -> tuple[IntArray, IntArray]:
    """Return (``high``, ``low``) of every key that ``pack`` made of them, shape (n,) each."""
    return np.asarray(key >> 32, dtype=np.int64), np.asarray(key & 0xFFFFFFFF, dtype=np.int64)


COLUMNS = ("step", "bin", "vehicle", "count", "total", "products")


def _none() -> IntArray:
    return np.zeros(0, dtype=np.int64)


def _repeats(vehicle: IntArray, time_us: IntArray) -> BoolArray:
    """Return which (vehicle, instant) pairs stand earlier in the arrays, shape (n,)."""
    # slow to load, and most commands have no stream
    import pandas as pd

    repeats: BoolArray = pd.DataFrame({"vehicle": vehicle, "time": time_us}).duplicated().to_numpy()
    return repeats


@dataclass
class StreamWindow:
    """The steps that are not closed: sums of accepted records, and which instants vehicles have reported.

    ``rows`` holds the sums by (step, bin, vehicle): COLUMNS, shape (R,) each. ``seen_vehicle`` and
    ``seen_time_us``, shape (T,), hold every record on time, accepted or not. Vehicles are numbers of
    ``Numbering``.
    """

    rows: dict[str, IntArray] = field(default_factory=lambda: {name: _none() for name in COLUMNS})
    seen_vehicle: IntArray = field(default_factory=_none)
    seen_time_us: IntArray = field(default_factory=_none)

    def repeats_earlier(self, vehicle: IntArray, time_us: IntArray, newest_us: IntArray) -> BoolArray:
        """Return for every record whether an earlier one has the same vehicle and instant, shape (n,).

        Earlier is in the window or before it in the arrays. ``vehicle`` holds numbers of ``Numbering``,
        ``newest_us`` the newest instant of each record's vehicle before these records, shape (n,) each.
        """
        result: BoolArray = _repeats(vehicle, time_us) | (time_us == newest_us)
        asked = np.flatnonzero(~result & (time_us < newest_us))
        if len(asked):
            near = np.isin(self.seen_vehicle, np.unique(vehicle[asked]))
            vehicles = np.append(self.seen_vehicle[near], vehicle[asked])
            times = np.append(self.seen_time_us[near], time_us[asked])
            result[asked] = _repeats(vehicles, times)[-len(asked) :]
        return result

    def add(self, rows: Mapping[str, IntArray]) -> None:
        """Add accepted records, or sums of some, to ``rows``: COLUMNS by name, all of shape (n,).

        ``total`` is of x and ``products`` of x (S - x), x being the clipped speed in steps.
        """
        import pandas as pd

        both = pd.DataFrame({name: np.append(self.rows[name], rows[name]) for name in COLUMNS})
        summed = both.groupby([*COLUMNS[:3]], as_index=False).sum()
        self.rows = {name: summed[name].to_numpy() for name in COLUMNS}

    def remove_step(self, step: int, seen_before_us: int) -> dict[str, IntArray]:
        """Remove the sums of ``step`` and return them; forget instants before ``seen_before_us``."""
        here = self.rows["step"] == step
        taken = {name: values[here] for name, values in self.rows.items()}
        self.rows = {name: values[~here] for name, values in self.rows.items()}
        kept = self.seen_time_us >= seen_before_us
        self.seen_vehicle, self.seen_time_us = self.seen_vehicle[kept], self.seen_time_us[kept]
        return taken

    def records_per_vehicle(self, vehicles: int) -> IntArray:
        """Return how many accepted records the window holds of each of the ``vehicles`` numbered so far."""
        held = np.zeros(vehicles, dtype=np.int64)
        np.add.at(held, self.rows["vehicle"], self.rows["count"])
        return held


Arrays = dict[str, npt.NDArray[np.generic]]
LEAD_US = 5 * MINUTE_US
FATES = ("accepted", "outside", "ahead", "late", "repeated", "over_cap", "no_budget", "no_account")
NUMBERED = ("vehicles", "cells", "slots", "bins")
ACCOUNTS = ("nodes_used", "charged", "pairs", "records", "visitors")
"""What a stream keeps besides its tree: keys that are numbered, and arrays of vehicles and of bins."""
_NEVER = np.iinfo(np.int64).min
MEAN, PRODUCT = 0, 1


@dataclass(frozen=True, repr=False)
class Batch:
    """Records in order of arrival, shape (n,) each. ``vehicle`` is the vault's number of the vehicle.

    ``time_us`` is in microseconds since 1970 UTC, ``cell`` the H3 index as int64, ``slot`` the number of the
    time slot, ``value`` the clipped speed in steps 0..S.
    """

    vehicle: IntArray
    time_us: IntArray
    cell: IntArray
    slot: IntArray
    value: IntArray

    def __len__(self) -> int:
        return len(self.time_us)

    def __repr__(self) -> str:
        return f"<Batch: {len(self)} records, redacted>"

    def select(self, rows: slice | IntArray) -> Batch:
        """Return the records at the positions ``rows``, in that order."""
        return Batch(*(values[rows] for values in vars(self).values()))


@dataclass(frozen=True, repr=False)
class ClosedStep:
    """What closing a step gives: exact counts by vehicle (``journal``), and noisy sums of all bins so far.

    ``journal``: cell, slot, vehicle (the vault's), records and position, one row a (bin, vehicle) of the
    step. Over all G bins met so far: ``cell``, ``slot``, ``records``, ``vehicles`` (exact below ``enough``),
    ``sums`` (noisy, shape (G, 1 or 2)) and ``terms``, the number of Laplace draws in each sum.
    """

    step: int
    journal: dict[str, IntArray]
    cell: IntArray
    slot: IntArray
    records: IntArray
    vehicles: IntArray
    sums: IntArray
    terms: IntArray


class Stream:
    """The whole state of a stream; give ``state()`` back to ``from_state`` and it goes on where it was.

    ``records_per_step`` (0: no limit) is the most records of one vehicle that a step takes. ``enough`` (None:
    without end): vehicles of a bin are counted up to so many and no further, which keeps memory flat.
    """

    def __init__(
        self, horizon: Horizon, allowance: Allowance, records_per_step: int, enough: int | None = None
    ) -> None:
        self.enough = np.iinfo(np.int64).max if enough is None else enough
        self.horizon, self.allowance, self.records_per_step = horizon, allowance, records_per_step
        self.clock_us, self.closed = _NEVER, 0
        self.fates = np.zeros(len(FATES), dtype=np.int64)
        self.window = StreamWindow()
        self.vehicles, self.cells, self.slots, self.bins = (Numbering() for _ in range(4))
        self.nodes_used = np.zeros(0, dtype=np.int64)
        self.newest_us = np.zeros(0, dtype=np.int64)
        self.charged = np.zeros(0, dtype=np.bool_)
        self.can_pay = np.zeros(0, dtype=np.bool_)
        self.pairs = np.zeros(0, dtype=np.int64)
        self.records = np.zeros(0, dtype=np.int64)
        self.visitors = np.zeros(0, dtype=np.int64)
        levels = 2 if allowance.products else 1
        self.bank = SignedCounterBank(0, levels, allowance.arity, allowance.heights, np.ones(1))

    def open_accounts(self, vehicle: IntArray) -> None:
        """Open an account for each of ``vehicle`` (the vault's numbers) without one; it cannot pay yet."""
        more = len(self.vehicles)
        self.vehicles.number(vehicle)
        more = len(self.vehicles) - more
        self.charged = np.append(self.charged, np.zeros(more, dtype=np.bool_))
        self.can_pay = np.append(self.can_pay, np.zeros(more, dtype=np.bool_))
        self.nodes_used = np.append(self.nodes_used, np.zeros(more, dtype=np.int64))
        self.newest_us = np.append(self.newest_us, np.full(more, _NEVER))

    def set_can_pay(self, can_pay: BoolArray) -> None:
        """Set which vehicles can pay the stream's epsilon: ``can_pay`` has one entry for each account.

        The order is that of ``vehicles.keys``. Vehicles already charged for the stream always can. No speed
        is read.
        """
        self.can_pay = can_pay | self.charged

    def mark_charged(self) -> IntArray:
        """Mark all vehicles with an accepted record as charged; return those that were not (vault's numbers).

        The caller must write their charges to the ledger in the transaction that stores the state.
        """
        taking = (self.window.records_per_vehicle(len(self.vehicles)) > 0) | (self.nodes_used > 0)
        new = np.flatnonzero(taking & ~self.charged)
        self.charged[new] = True
        return np.asarray(self.vehicles.keys[new], dtype=np.int64)

    def process(self, batch: Batch, start: int, now_us: int | None = None) -> int:
        """Accept or reject records of ``batch`` from index ``start`` to the first that ends a step, included.

        Returns the index of the next record. Then call ``close_step`` while ``has_step_to_close``. First
        ``open_accounts`` of all vehicles and ``set_can_pay``. ``now_us`` is the wall clock of a live stream
        (records more than 5 minutes ahead of it are rejected), None for a replay.
        """
        time = batch.time_us[start:]
        counts = time < self.horizon.end_us + self.horizon.step_us + self.horizon.lateness_us
        if now_us is not None:
            counts &= time <= now_us + LEAD_US
        running = np.maximum.accumulate(np.where(counts, time, _NEVER))
        over = self.horizon.steps_over(np.maximum(running, max(self.clock_us, self.horizon.origin_us)))
        stop = int(np.searchsorted(over, self.closed, side="right")) + 1
        stop = min(stop, len(time))
        if stop:
            self._admit(batch, slice(start, start + stop), counts[:stop])
            self.clock_us = max(self.clock_us, int(running[stop - 1]))
        return start + stop

    def has_step_to_close(self, *, everything: bool = False) -> bool:
        """Return whether a step is over by the stream's clock, lateness included, and not closed yet.

        With ``everything``, whether any step that is not closed holds records.
        """
        if everything:
            return len(self.window.rows["step"]) > 0
        clock = np.array([max(self.clock_us, self.horizon.origin_us)], dtype=np.int64)
        return self.closed < int(self.horizon.steps_over(clock)[0])

    def close_step(self, noise: NoiseSource) -> ClosedStep | None:
        """Close the next step: add its records to the running sums and draw noise for the new tree nodes.

        Returns the step's exact counts and the noisy sums of all bins, or None without accepted records in
        the step.
        """
        step = self.closed
        self.closed += 1
        rows = self.window.remove_step(step, self.horizon.origin_us + self.closed * self.horizon.step_us)
        if not len(rows["bin"]):
            return None
        bins, which = np.unique(rows["bin"], return_inverse=True)
        self._grow()
        position = self.bank.counts()[bins, 0] + 1
        entries = EntryIndex(rows["vehicle"], which, len(self.vehicles), len(bins))
        squares = np.full(len(bins), self.allowance.products)
        of = Moments(entries, rows["count"], self.allowance.value_steps, squares)
        values = np.stack([rows["total"], rows["products"]])
        self.nodes_used = self.bank.append(bins, of, values, self.nodes_used, self.allowance.epsilon)
        np.add.at(self.records, rows["bin"], rows["count"])
        self._count_vehicles(rows["bin"], rows["vehicle"])
        cell_number, slot_number = unpack(self.bins.keys)
        cell, slot = self.cells.keys[cell_number], self.slots.keys[slot_number]
        journal = {
            "cell": cell[rows["bin"]],
            "slot": slot[rows["bin"]],
            "vehicle": self.vehicles.keys[rows["vehicle"]],
            "records": rows["count"],
            "position": position[which],
        }
        known = self.records > 0
        return ClosedStep(
            step=step,
            journal=journal,
            cell=cell[known],
            slot=slot[known],
            records=self.records[known],
            vehicles=self.visitors[known],
            sums=self.bank.sums(noise)[known],
            terms=self.bank.terms()[known, MEAN],
        )

    def _grow(self) -> None:
        more = len(self.bins) - self.bank.bins
        scales = [self.allowance.mean_scale, self.allowance.product_scale][: self.bank.levels]
        self.bank.grow(len(self.bins), np.array(scales, dtype=np.float64))
        self.records = np.append(self.records, np.zeros(more, dtype=np.int64))
        self.visitors = np.append(self.visitors, np.zeros(more, dtype=np.int64))

    def _count_vehicles(self, bins: IntArray, vehicle: IntArray) -> None:
        """Add vehicles that are new to a bin to its count; forget pairs of bins that have ``enough``."""
        open_ = self.visitors[bins] < self.enough
        pairs = pack(bins[open_], vehicle[open_])
        new = pairs[~np.isin(pairs, self.pairs, assume_unique=True)]
        np.add.at(self.visitors, unpack(new)[0], 1)
        both = np.concatenate([self.pairs, new])
        self.pairs = np.sort(both[self.visitors[unpack(both)[0]] < self.enough])

    def _admit(self, batch: Batch, rows: slice, in_time: BoolArray) -> None:
        """Decide on every record of ``rows`` by the first rule that fits; add accepted ones to the window.

        ``in_time`` is False for records too far ahead. No step closes on the way, except after the last
        record.
        """
        time = batch.time_us[rows]
        step = self.horizon.step_of(time)
        fate = np.full(len(time), FATES.index("accepted"))
        inside = (step >= 0) & (step < self.horizon.steps)
        fate[inside & ~in_time] = FATES.index("ahead")
        fate[~inside] = FATES.index("outside")
        fate[inside & in_time & (step < self.closed)] = FATES.index("late")
        left = np.flatnonzero(fate == 0)
        vehicle = self.vehicles.find(batch.vehicle[rows][left])
        repeated = self.window.repeats_earlier(vehicle, time[left], self.newest_us[vehicle])
        fate[left[repeated]] = FATES.index("repeated")
        left, vehicle = left[~repeated], vehicle[~repeated]
        self.window.seen_vehicle = np.append(self.window.seen_vehicle, vehicle)
        self.window.seen_time_us = np.append(self.window.seen_time_us, time[left])
        np.maximum.at(self.newest_us, vehicle, time[left])

        for name, keep in (
            ("no_budget", self._paying),
            ("over_cap", self._under_cap),
            ("no_account", self._room),
        ):
            kept = keep(vehicle, step[left])
            fate[left[~kept]] = FATES.index(name)
            left, vehicle = left[kept], vehicle[kept]
        self.fates += np.bincount(fate, minlength=len(FATES))
        value = batch.value[rows][left]
        cell = self.cells.number(batch.cell[rows][left])
        slot = self.slots.number(batch.slot[rows][left])
        second = value * (self.allowance.value_steps - value)
        self.window.add(
            {
                "step": step[left],
                "bin": self.bins.number(pack(cell, slot)),
                "vehicle": vehicle,
                "count": np.ones(len(left), dtype=np.int64),
                "total": value,
                "products": second if self.allowance.products else np.zeros_like(value),
            }
        )

    def _paying(self, vehicle: IntArray, step: IntArray) -> BoolArray:
        return self.can_pay[vehicle]

    def _under_cap(self, vehicle: IntArray, step: IntArray) -> BoolArray:
        """Return which records are among their vehicle's first ``records_per_step`` in the step, (n,)."""
        if not self.records_per_step:
            return np.ones(len(vehicle), dtype=np.bool_)
        import pandas as pd

        group, open_ = pack(vehicle, step), self.window.rows
        taken = pd.Series(open_["count"]).groupby(pack(open_["vehicle"], open_["step"])).sum()
        before = taken.reindex(group, fill_value=0).to_numpy()
        return np.asarray(before + rank_within(group) < self.records_per_step)

    def _room(self, vehicle: IntArray, step: IntArray) -> BoolArray:
        """Return which records the accounts of their vehicles can still pay, shape (n,).

        A record may touch H (``heights``) nodes of a tree, and a vehicle at most A = H M
        (``nodes_per_vehicle``). What earlier records touched and H for every record in the window are
        subtracted from A first. Of one vehicle's records in ``vehicle`` (n,) the first are taken. ``step`` is
        not used.
        """
        heights = self.allowance.heights
        reserved = self.window.records_per_vehicle(len(self.vehicles)) * heights
        left = (self.allowance.nodes_per_vehicle - self.nodes_used - reserved) // heights
        return np.asarray(rank_within(vehicle) < left[vehicle])

    def state(self) -> tuple[Arrays, Arrays]:
        """Return (opened, kept), the arrays of the stream by name, for ``from_state``. Private: exact sums.

        ``opened`` changes with every batch, ``kept`` when a step closes or a vehicle or bin is new.
        """
        moments = np.array([self.clock_us, self.closed], dtype=np.int64)
        opened: Arrays = {
            "moments": moments,
            "fates": self.fates,
            "newest_us": self.newest_us,
            **{f"window_{name}": values for name, values in self.window.rows.items()},
            "window_seen_vehicle": self.window.seen_vehicle,
            "window_seen_time_us": self.window.seen_time_us,
        }
        kept: Arrays = {
            **{name: getattr(self, name).keys for name in NUMBERED},
            **{name: getattr(self, name) for name in ACCOUNTS},
            **{f"bank_{name}": values for name, values in self.bank.state().items()},
        }
        return opened, kept

    @classmethod
    def from_state(
        cls,
        horizon: Horizon,
        allowance: Allowance,
        records_per_step: int,
        opened: Mapping[str, npt.NDArray[np.generic]],
        kept: Mapping[str, npt.NDArray[np.generic]],
        enough: int | None = None,
    ) -> Stream:
        """Return the stream whose ``state`` was (``opened``, ``kept``), made with the other parameters."""
        stream = cls(horizon, allowance, records_per_step, enough)
        stream.clock_us, stream.closed = (int(each) for each in opened["moments"])
        stream.fates = np.array(opened["fates"], dtype=np.int64)
        stream.newest_us = np.array(opened["newest_us"], dtype=np.int64)
        window = {name: np.array(own, dtype=np.int64) for name, own in _part(opened, "window_").items()}
        rows = {name: window[name] for name in COLUMNS}
        stream.window = StreamWindow(rows, window["seen_vehicle"], window["seen_time_us"])
        for name in NUMBERED:
            setattr(stream, name, Numbering(np.array(kept[name], dtype=np.int64)))
        for name in ACCOUNTS:
            setattr(stream, name, np.array(kept[name], dtype=getattr(stream, name).dtype))
        stream.can_pay = stream.charged.copy()
        if len(kept["bank_count"]):
            stream.bank = SignedCounterBank.from_state(_part(kept, "bank_"))
        return stream


def _part(arrays: Mapping[str, npt.NDArray[np.generic]], prefix: str) -> Arrays:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
