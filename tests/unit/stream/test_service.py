"""Which records a stream counts, and that nothing about it depends on how they arrive in batches."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.measurement.nodes import signed_nodes_touched
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import PureDP
from trafficdp.stream.horizon import MINUTE_US, Horizon
from trafficdp.stream.service import FATES, Allowance, Batch, Stream

S = 10


class NoNoise:
    """Draws that are all 0, so that sums can be read."""

    def discrete_laplace(self, scale):
        return np.zeros(len(scale), dtype=np.int64)


def horizon(steps=8, lateness=2):
    return Horizon(0, 5 * MINUTE_US, steps, lateness * MINUTE_US, steps)


def stream(steps=8, lateness=2, records=100, cap=0, squares=True, epsilon=1):
    time = horizon(steps, lateness)
    arity, heights = time.tree()
    allowance = Allowance(PureDP.of(epsilon), S, arity, heights, records, squares)
    return Stream(time, allowance, cap)


def batch(rows):
    """Rows of (vehicle, minute, cell, slot, value)."""
    columns = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    vehicle, minute, cell, slot, value = columns
    whole = [each.astype(np.int64) for each in (vehicle, minute * MINUTE_US, cell, slot, value)]
    return Batch(*whole)


def feed(subject, records, cuts=(), noise=None, finish=False, can_pay=None, now_us=None):
    """Take all records in batches that end at ``cuts``; return what every closed step said."""
    said = []
    edges = [0, *sorted(cuts), len(records)]
    for first, last in itertools.pairwise(edges):
        part = Batch(*(getattr(records, name)[first:last] for name in Batch.__dataclass_fields__))
        subject.open_accounts(part.vehicle)
        payable = np.ones(len(subject.vehicles), dtype=np.bool_)
        if can_pay is not None:
            payable = np.isin(subject.vehicles.keys, can_pay)
        subject.set_can_pay(payable)
        place = 0
        while place < len(part):
            place = subject.process(part, place, now_us)
            while subject.has_step_to_close():
                said.append(subject.close_step(noise or NoNoise()))
    while finish and subject.has_step_to_close(everything=True):
        said.append(subject.close_step(noise or NoNoise()))
    return [each for each in said if each is not None]


def fates(subject):
    return {name: int(count) for name, count in zip(FATES, subject.fates, strict=True) if count}


def test_a_step_is_published_when_the_clock_has_passed_its_end_by_the_lateness():
    subject = stream()
    assert feed(subject, batch([[1, 1, 7, 0, 4], [2, 4, 7, 0, 6], [3, 6.9, 7, 0, 9]])) == []
    (closed,) = feed(subject, batch([[4, 7, 7, 0, 1]]))
    assert closed.step == 0
    assert (closed.records.tolist(), closed.vehicles.tolist()) == ([2], [2])
    assert closed.sums.tolist() == [[4 + 6, 4 * 6 + 6 * 4]]


def test_the_fix_that_ends_a_step_still_counts_for_the_next():
    said = feed(stream(), batch([[1, 1, 7, 0, 4], [2, 8, 7, 0, 6]]), finish=True)
    assert [each.sums[0, 0] for each in said] == [4, 10]


def test_a_late_fix_is_counted_and_left_out():
    subject = stream()
    said = feed(subject, batch([[1, 1, 7, 0, 4], [2, 8, 7, 0, 6], [3, 4.9, 7, 0, 9]]), finish=True)
    assert said[-1].sums[0, 0] == 10
    assert fates(subject) == {"accepted": 2, "late": 1}


def test_a_fix_out_of_order_counts_while_its_step_is_open():
    subject = stream()
    said = feed(subject, batch([[1, 6, 7, 0, 4], [1, 4, 7, 0, 5], [2, 6.5, 7, 0, 6]]), finish=True)
    assert said[-1].records.tolist() == [3]


def test_the_same_vehicle_and_instant_counts_once_and_the_first_stays():
    subject = stream()
    rows = [[1, 1, 7, 0, 4], [1, 1, 7, 0, 9], [1, 3, 7, 0, 5], [1, 1, 8, 0, 9], [1, 3, 7, 0, 8]]
    said = feed(subject, batch(rows), cuts=(2, 3, 4), finish=True)
    assert fates(subject) == {"accepted": 2, "repeated": 3}
    assert said[-1].sums[:, 0].tolist() == [9]


def test_an_instant_that_was_met_long_before_the_newest_counts_once():
    subject = stream()
    rows = [[1, minute, 7, 0, 4] for minute in (0, 2, 3, 4, 2, 1)]
    feed(subject, batch(rows), cuts=(4,), finish=True)
    assert fates(subject) == {"accepted": 5, "repeated": 1}


def test_fixes_outside_the_horizon_are_left_out_and_do_not_move_the_clock():
    subject = stream(steps=2)
    feed(subject, batch([[1, -3, 7, 0, 4], [1, 1, 7, 0, 4], [1, 10**6, 7, 0, 4], [1, 2, 7, 0, 4]]))
    assert fates(subject) == {"accepted": 2, "outside": 2}
    assert subject.closed == 0


def test_a_fix_far_ahead_of_the_wall_clock_does_not_close_the_map():
    subject = stream()
    rows = [[1, 1, 7, 0, 4], [2, 30, 7, 0, 4], [1, 2, 7, 0, 4]]
    feed(subject, batch(rows), now_us=3 * MINUTE_US)
    assert fates(subject) == {"accepted": 2, "ahead": 1}
    assert subject.closed == 0


@pytest.mark.parametrize(("now", "fate"), [(5, "accepted"), (4.99, "ahead")])
def test_a_fix_may_be_five_minutes_ahead_of_the_wall_clock(now, fate):
    subject = stream()
    feed(subject, batch([[1, 10, 7, 0, 4]]), now_us=int(now * MINUTE_US))
    assert fates(subject) == {fate: 1}


def test_an_account_with_room_for_a_record_and_a_half_takes_one():
    subject = stream(steps=300, records=6)
    heights = subject.allowance.heights
    assert heights > 1
    subject.open_accounts(np.array([1]))
    subject.nodes_used[:] = subject.allowance.nodes_per_vehicle - heights - 1
    feed(subject, batch([[1, 1, 7, 0, 4], [1, 1.5, 7, 0, 4]]))
    assert fates(subject) == {"accepted": 1, "no_account": 1}


def test_a_vehicle_that_cannot_pay_is_left_out_whole():
    subject = stream()
    said = feed(subject, batch([[1, 1, 7, 0, 4], [2, 2, 7, 0, 9]]), can_pay=[1], finish=True)
    assert said[-1].sums[0, 0] == 4
    assert fates(subject) == {"accepted": 1, "no_budget": 1}
    assert subject.mark_charged().tolist() == [1]
    assert subject.mark_charged().tolist() == []


def test_a_step_takes_no_more_of_a_vehicle_than_the_cap():
    subject = stream(cap=2)
    rows = [[1, 1, 7, 0, 1], [1, 2, 8, 0, 2], [2, 2.5, 7, 0, 4], [1, 3, 7, 0, 8], [1, 5.5, 7, 0, 16 % 11]]
    feed(subject, batch(rows), cuts=(1, 2))
    assert fates(subject) == {"accepted": 4, "over_cap": 1}


def test_an_account_that_is_used_up_takes_nothing_more():
    subject = stream(records=2)
    rows = [[1, 0.1 * i, 7, 0, 3] for i in range(5)] + [[2, 0.2, 7, 0, 1]]
    feed(subject, batch(rows))
    assert fates(subject) == {"accepted": 3, "no_account": 3}


@pytest.mark.parametrize("cuts", [(), range(1, 11)])
def test_records_of_steps_that_are_open_take_room_of_every_limit(cuts):
    """What an account or a cap has left is less what waits in the window, however many batches brought it.

    And a vehicle is charged as soon as a record of it waits there, not only when its step is over.
    """
    rows = [[1, 0.1 * i, 7 + i % 2, 0, 3] for i in range(11)]
    subject = stream(records=2, cap=0)
    most = subject.allowance.nodes_per_vehicle // subject.allowance.heights
    feed(subject, batch(rows), cuts=cuts)
    assert fates(subject) == {"accepted": most, "no_account": 11 - most}
    assert subject.mark_charged().tolist() == [1]
    capped = stream(cap=2)
    feed(capped, batch(rows), cuts=cuts)
    assert fates(capped) == {"accepted": 2, "over_cap": 9}
    for each in (subject, capped):
        assert int(each.nodes_used.sum()) == 0
        feed(each, batch(rows[:0]), finish=True)
        assert 0 < int(each.nodes_used.max()) <= each.allowance.nodes_per_vehicle


@pytest.mark.parametrize("steps", [1, 5, 8, 30])
def test_no_account_passes_the_allowance_and_the_sure_fixes_are_taken(steps):
    records = 6
    subject = stream(steps=steps, records=records, lateness=0)
    rows = [[1 + i % 3, minute + i / 100, 7 + i % 2, 0, 5] for minute in range(5 * steps) for i in range(6)]
    said = feed(subject, batch(rows), cuts=range(7, len(rows), 7), finish=True)
    assert int(subject.nodes_used.max()) <= subject.allowance.nodes_per_vehicle
    taken = {}
    for each in said:
        for vehicle, count in zip(each.journal["vehicle"], each.journal["records"], strict=True):
            taken[int(vehicle)] = taken.get(int(vehicle), 0) + int(count)
    assert min(taken.values()) >= records
    # the accounts are what the journal says
    touched = {}
    for each in said:
        nodes = signed_nodes_touched(
            each.journal["position"], subject.allowance.arity, subject.allowance.heights
        )
        for vehicle, count in zip(each.journal["vehicle"], each.journal["records"] * nodes, strict=True):
            touched[int(vehicle)] = touched.get(int(vehicle), 0) + int(count)
    assert touched == dict(zip(subject.vehicles.keys.tolist(), subject.nodes_used.tolist(), strict=True))


FIXES = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(-8, 90).map(lambda n: n / 2),
        st.integers(7, 9),
        st.integers(0, 1),
        st.integers(0, S),
    ),
    min_size=1,
    max_size=40,
)


def reference(rows, *, steps, lateness, cap, records, heights, arity):
    """The stated rules, one record at a time."""
    clock, closed, met, window, account = None, 0, set(), [], {}
    counts, sums, positions = dict.fromkeys(FATES, 0), {}, {}
    for vehicle, minute, cell, slot, value in rows:
        step = int(minute // 5)
        if minute < 5 * steps + 5 + lateness:
            clock = minute if clock is None else max(clock, minute)
        mine = [each for each in window if each[0] == vehicle]
        if not 0 <= step < steps:
            fate = "outside"
        elif step < closed:
            fate = "late"
        elif (vehicle, minute) in met:
            fate = "repeated"
        else:
            met.add((vehicle, minute))
            held = heights * len(mine) + account.get(vehicle, 0)
            if cap and sum(each[1] == step for each in mine) >= cap:
                fate = "over_cap"
            elif held + heights > heights * records:
                fate = "no_account"
            else:
                fate = "accepted"
                window.append((vehicle, step, (cell, slot), value))
        counts[fate] += 1
        while clock is not None and closed < steps and clock - lateness >= 5 * (closed + 1):
            over = [each for each in window if each[1] == closed]
            for place in {each[2] for each in over}:
                positions[place] = positions.get(place, 0) + 1
            for car, _, place, speed in over:
                nodes = int(signed_nodes_touched(np.array([positions[place]]), arity, heights)[0])
                account[car] = account.get(car, 0) + nodes
                sums[place] = sums.get(place, 0) + speed
            window = [each for each in window if each[1] != closed]
            closed += 1
    return {name: count for name, count in counts.items() if count}, sums, closed


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(FIXES, st.sets(st.integers(1, 39), max_size=5), st.sampled_from([0, 1, 3]), st.sampled_from([2, 50]))
def test_the_rules_are_those_of_one_fix_at_a_time_however_batches_are_cut(rows, cuts, cap, records):
    subject = stream(cap=cap, records=records)
    said = feed(subject, batch(rows), cuts=[cut for cut in cuts if cut < len(rows)])
    allowance = subject.allowance
    counts, sums, closed = reference(
        rows, steps=8, lateness=2, cap=cap, records=records, heights=allowance.heights, arity=allowance.arity
    )
    assert fates(subject) == counts
    assert subject.closed == closed
    if said:
        last = said[-1]
        places = zip(last.cell.tolist(), last.slot.tolist(), strict=True)
        assert dict(zip(places, last.sums[:, 0].tolist(), strict=True)) == sums


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(FIXES, st.integers(0, 39))
def test_a_stream_that_is_stored_and_loaded_goes_on_as_if_nothing_had_been(rows, cut):
    records, cut = batch(rows), min(cut, len(rows))
    whole, first = stream(), stream()
    expected = feed(whole, records, noise=SimulatedNoise(1), finish=True)
    halves = [
        Batch(*(getattr(records, name)[part] for name in Batch.__dataclass_fields__))
        for part in (slice(None, cut), slice(cut, None))
    ]
    source = SimulatedNoise(1)
    said = feed(first, halves[0], noise=source)
    opened, kept = first.state()
    again = Stream.from_state(first.horizon, first.allowance, 0, opened, kept)
    said += feed(again, halves[1], noise=source, finish=True)
    assert [each.sums.tolist() for each in said] == [each.sums.tolist() for each in expected]
    assert again.fates.tolist() == whole.fates.tolist()
    assert again.nodes_used.tolist() == whole.nodes_used.tolist()


def test_what_is_published_is_the_exact_sum_and_the_noise_of_the_nodes():
    rows = [[v, 5 * step + 0.1 * v, 7, 0, v % S] for step in range(8) for v in range(1, 6)]
    noisy = feed(stream(), batch(rows), noise=SimulatedNoise(3), finish=True)
    exact = feed(stream(), batch(rows), finish=True)
    for one, other in zip(noisy, exact, strict=True):
        assert (one.terms >= 1).all()
        assert (one.sums != other.sums).any()
        assert one.records.tolist() == other.records.tolist()
    # the same node keeps its noise: without new records in a bin, its sum stays
    quiet = [*rows[:5], [9, 6, 8, 0, 1], [9, 11, 8, 0, 1]]
    said = feed(stream(), batch(quiet), noise=SimulatedNoise(3), finish=True)
    assert len({int(each.sums[0, 0]) for each in said}) == 1


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(FIXES, st.integers(1, 3))
def test_vehicles_are_counted_exactly_up_to_what_is_enough(rows, enough):
    whole = feed(stream(), batch(rows), finish=True)
    subject = stream()
    subject.enough = enough
    short = feed(subject, batch(rows), finish=True)
    for one, other in zip(whole, short, strict=True):
        assert np.minimum(one.vehicles, enough).tolist() == np.minimum(other.vehicles, enough).tolist()
        assert one.sums.tolist() == other.sums.tolist()
    full = np.flatnonzero(subject.visitors >= enough)
    assert not np.isin(subject.pairs >> 32, full).any()
