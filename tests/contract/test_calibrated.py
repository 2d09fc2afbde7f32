"""What every kind of calibrated mechanism keeps: one interface, and public facts that are given once."""

import inspect
import json
import re
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.calibrated import BlockAccounting
from trafficdp.mechanisms.clip_user import SuppressionAccounting
from trafficdp.mechanisms.laplace.accountings import LaplaceAccounting
from trafficdp.mechanisms.per_statistic_map import MECHANISMS, PerStatisticMechanism, StatisticMechanism
from trafficdp.mechanisms.protocol import Accounting, CalibratedMechanism, JointRequest, PublicFacts
from trafficdp.mechanisms.registry import (
    JOINT_MECHANISMS,
    KINDS,
    MechanismReader,
    all_accountings,
    calibrated_from_facts,
)
from trafficdp.model import ContributionBound, Counts, NeighbouringRelation, SpeedUnit, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind, PureDP
from trafficdp.release.curator import Recorded
from trafficdp.release.verification import Replayed
from trafficdp.sensitive import Contributions, Samples, SensitiveInputs

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
LOSS = PureDP.of(4)
MORE = {
    "laplace": ((MEAN, VARIANCE, VEHICLE_MEAN), (VARIANCE,)),
    "blocks": ((MEAN,), (MEAN, VARIANCE)),
    "suppressed": ((MEAN,), (MEAN, VARIANCE)),
    "mechanism": ((MEAN,),),
    **{name: (each.estimable[:1], each.estimable) for name, each in JOINT_MECHANISMS.items()},
}
"""What every kind is tried on."""


def signature(of, name):
    """Names, kinds and types of what a method takes and returns."""
    method = getattr(of, name)
    taken = inspect.signature(method)
    # `model.Statistic` is `Statistic`
    return [
        (each.name, each.kind, re.sub(r"\b[a-z_]+\.(?=[A-Z])", "", each.annotation))
        for each in taken.parameters.values()
        if each.name not in ("self", "cls")
    ]


def methods_of(protocol):
    return [
        name for name, each in vars(protocol).items() if inspect.isfunction(each) and not name.startswith("_")
    ]


def facts_for(kind, counts_of, bound_of):
    # the last bin has one record: nothing about its variance is secret
    counts, bound = counts_of([[3, 1, 2], [1, 4, 1], [2, 2, 5], [1, 0, 0]]), bound_of(60, "1/10")
    if (
        kind in JOINT_MECHANISMS
        and JOINT_MECHANISMS[kind].relation is NeighbouringRelation.ADD_OR_REMOVE_USER
    ):
        anyone = Counts.for_declared_grid(counts.cell, counts.slot)
        return PublicFacts(anyone, bound, NeighbouringRelation.ADD_OR_REMOVE_USER)
    return PublicFacts(counts, bound)


def calibrated_as(kind, facts, statistics=None, loss=LOSS):
    """A calibrated mechanism of ``kind`` by the call of a plan; of its first statistic alone."""
    statistics = statistics or MORE[kind][0][:1]
    if kind in JOINT_MECHANISMS:
        return JOINT_MECHANISMS[kind].calibrate(facts, loss, JointRequest(statistics, 100, False, 0))
    if kind == PerStatisticMechanism.kind:
        parts = dict.fromkeys(statistics, StatisticMechanism("pooled", np.full(facts.counts.bins, 0.5)))
        return PerStatisticMechanism.calibrate(facts, loss, parts)
    named = "clip_user" if kind == "suppressed" else kind
    tolerance = dict.fromkeys(statistics, 1.0)
    accountings = all_accountings(facts.counts, facts.bound, tolerance, accounting=named)
    chosen = {"laplace": "equal"}.get(named, named)
    return next(each for each in accountings if each.name == chosen).calibrate(loss)


@EVERY_KIND
def test_every_kind_has_the_one_interface_and_takes_nothing_public_again(kind):
    for protocol in (CalibratedMechanism, MechanismReader):
        for name in methods_of(protocol):
            asked, own = signature(protocol, name), signature(KINDS[kind], name)
            assert own == asked, f"{kind}.{name} takes {own}"
    for name in methods_of(CalibratedMechanism):
        taken = {each[0] for each in signature(KINDS[kind], name)}
        assert not taken & {"counts", "bound", "public", "facts", "relation"}, name
    assert fields(KINDS[kind])[0].name == "public"
    assert KINDS[kind].kind == kind


def test_all_are_calibrated_on_public_facts_and_a_loss():
    for maker in (*JOINT_MECHANISMS.values(), PerStatisticMechanism):
        names = [each[0] for each in signature(maker, "calibrate")]
        assert names[:2] == ["facts", "loss"], maker
        assert len(names) <= 3, maker


def test_accountings_are_made_of_public_facts_and_take_nothing_public_again():
    for maker in (Accounting, LaplaceAccounting, BlockAccounting, SuppressionAccounting):
        assert [each[0] for each in signature(maker, "calibrate")] == ["loss"], maker
        for name in methods_of(Accounting):
            assert not {each[0] for each in signature(maker, name)} & {"counts", "bound", "facts"}, name


@EVERY_KIND
def test_public_facts_are_given_once_and_lead_to_all_the_rest(kind, counts_of, bound_of):
    facts = facts_for(kind, counts_of, bound_of)
    calibrated = calibrated_as(kind, facts)
    assert (calibrated.kind, calibrated.public) == (kind, facts)
    assert calibrated.composition.strip(" .") == calibrated.composition != ""
    assert calibrated.steps()
    event = calibrated.event()
    assert 0 < event.loss.pico <= LOSS.pico
    assert (event.relation, event.bins) == (facts.relation, facts.counts.bins)
    errors, halves = calibrated.expected_errors(), calibrated.half_widths(0.9)
    assert tuple(errors) == tuple(halves) == calibrated.statistics
    for statistic in calibrated.statistics:
        assert errors[statistic].shape == halves[statistic].shape == (facts.counts.bins,)
        assert calibrated.statement(statistic).noise_scale.shape == (facts.counts.bins,)
    frozen = calibrated.to_facts()
    # what was written and read is equal to what would be written
    assert json.loads(json.dumps(frozen, allow_nan=False)) == frozen
    again = calibrated_from_facts(frozen, facts)
    assert again.to_facts() == frozen
    np.testing.assert_array_equal(again.event().loss_per_user, event.loss_per_user)


@pytest.mark.parametrize("epsilon", [0.05, 4, 400])
@pytest.mark.parametrize(("kind", "statistics"), [(kind, each) for kind in KINDS for each in MORE[kind]])
def test_what_is_run_is_what_was_foreseen_and_is_read_back_from_what_is_published(
    kind, statistics, epsilon, counts_of, bound_of
):
    facts = facts_for(kind, counts_of, bound_of)
    calibrated = calibrated_as(kind, facts, statistics, PureDP.of(epsilon))
    counts = facts.counts
    if facts.relation is NeighbouringRelation.ADD_OR_REMOVE_USER:
        nothing = Contributions.for_declared_grid(counts.cell, counts.slot, facts.bound)
        values = SensitiveInputs(nothing, samples_of(nothing), lambda: nothing)
    else:
        half = counts.count * (facts.bound.upper_steps // 2)
        known = Contributions(counts, half, half * (facts.bound.upper_steps // 2), np.arange(3), facts.bound)
        values = SensitiveInputs(known, samples_of(known))
    found = calibrated.run(values, SimulatedNoise(1), interval_level=0.9)
    assert tuple(found) == calibrated.statistics == statistics
    foreseen, widths = calibrated.expected_errors(), calibrated.half_widths(0.9)
    columns = {}
    for statistic, each in found.items():
        assert np.all((each.low <= each.value) & (each.value <= each.high))
        assert np.all((each.low >= 0) & (each.high <= statistic.largest(facts.bound.upper)))
        columns[statistic] = dict(each.noise)
        if facts.relation is NeighbouringRelation.REPLACE_USER_VALUES:
            if not each.posterior:
                np.testing.assert_array_equal(each.expected_error, foreseen[statistic])
            np.testing.assert_array_equal(each.noise_scale, calibrated.statement(statistic).noise_scale)
        if kind not in JOINT_MECHANISMS:
            # maps of one piece lean on other bins: their intervals follow from answers
            assert np.all(each.high - each.value <= 2 * widths[statistic] + 1e-9)
            if statistic is VARIANCE:
                told = each.status[-1], each.value[-1], each.low[-1], each.high[-1], each.noise_scale[-1]
                assert told == ("constant", 0.0, 0.0, 0.0, 0.0)
                assert foreseen[VARIANCE][-1] == widths[VARIANCE][-1] == 0
    again = calibrated_from_facts(calibrated.manifest_facts(), facts, columns)
    np.testing.assert_array_equal(again.event().loss_per_user, calibrated.event().loss_per_user)


@pytest.mark.parametrize("users", [3, 7, 60])
@pytest.mark.parametrize(("kind", "statistics"), [(kind, each) for kind in KINDS for each in MORE[kind]])
def test_what_is_published_follows_from_what_was_measured_alone(kind, statistics, users, counts_of, bound_of):
    """The same answers give the same numbers on other speeds: none is exact, however many vehicles there are.

    Bins of some and of all vehicles, and mechanisms of two medians, means and variances.
    """
    counts, bound = counts_of([[2] * users, [3] * (users // 2) + [0] * (users - users // 2)]), bound_of(60)
    hidden = facts_for(kind, counts_of, bound_of).relation is NeighbouringRelation.ADD_OR_REMOVE_USER
    facts = PublicFacts(counts, bound)
    if hidden:
        anyone = Counts.for_declared_grid(counts.cell, counts.slot)
        facts = PublicFacts(anyone, bound, NeighbouringRelation.ADD_OR_REMOVE_USER)
    calibrated = calibrated_as(kind, facts, statistics)

    def values(seed):
        drawn = np.random.default_rng(seed).integers(0, bound.upper_steps + 1, int(counts.count.sum()))
        samples = Samples(counts, drawn // (seed + 1), np.arange(1, users + 1), bound)
        known = samples.contributions()
        if hidden:
            nothing = Contributions.for_declared_grid(counts.cell, counts.slot, bound)
            return SensitiveInputs(nothing, lambda: samples, lambda: known)
        return SensitiveInputs(known, lambda: samples)

    recorded = Recorded(SimulatedNoise(1))
    first = calibrated.run(values(0), recorded, interval_level=0.9)
    again = Replayed(recorded.to_bytes())
    other = calibrated.run(values(1), again, interval_level=0.9)
    assert not again.left
    for statistic in calibrated.statistics:
        for name in ("value", "low", "high"):
            one, same = (getattr(each[statistic], name) for each in (first, other))
            np.testing.assert_array_equal(one, same)


@pytest.mark.parametrize(
    ("kind", "statistics"), [(kind, each) for kind in JOINT_MECHANISMS for each in MORE[kind]]
)
def test_the_unit_of_speed_changes_the_unit_of_the_map_alone(kind, statistics, counts_of, bound_of):
    """The same sums in whole steps and the same noise: in m/s, numbers are 3.6 times as small as in km/h."""
    facts, found = facts_for(kind, counts_of, bound_of), []
    counts = counts_of([[3, 1, 2], [1, 4, 1], [2, 2, 5], [1, 0, 0]])
    total = counts.count * (100 + 40 * counts.bin_index)
    per_second = ContributionBound(Fraction(50, 3), Fraction(1, 36), SpeedUnit.METRES_PER_SECOND)
    for bound in (facts.bound, per_second):
        calibrated = calibrated_as(kind, replace(facts, bound=bound), statistics)
        known = Contributions(counts, total, total * 300, np.arange(3), bound)
        values = SensitiveInputs(known, samples_of(known), lambda known=known: known)
        drawn = calibrated.run(values, SimulatedNoise(1), interval_level=0.9)
        errors, halves = calibrated.expected_errors(), calibrated.half_widths(0.9)
        found.append({each: (drawn[each], errors[each], halves[each]) for each in statistics})
    for each in statistics:
        times = 3.6**2 if each is VARIANCE else 3.6
        (one, *foreseen), (other, *again) = (numbers[each] for numbers in found)
        np.testing.assert_allclose(times * np.array(again), foreseen, rtol=1e-6)
        for name in ("value", "low", "high", "expected_error"):
            np.testing.assert_allclose(times * getattr(other, name), getattr(one, name), rtol=1e-6)


def samples_of(contributions):
    """Every record in the middle of the range."""
    counts, bound = contributions.counts, contributions.bound
    middle = np.full(int(counts.count.sum()), bound.upper_steps // 2)
    return lambda: Samples(counts, middle, contributions.vehicle, bound)


@pytest.mark.parametrize("kind", JOINT_MECHANISMS)
def test_no_map_is_calibrated_on_facts_of_the_other_relation(kind, counts_of, bound_of):
    facts = facts_for(kind, counts_of, bound_of)
    (other,) = {*NeighbouringRelation} - {facts.relation}
    wanted = JointRequest(JOINT_MECHANISMS[kind].estimable[:1], 100, False, 0)
    with pytest.raises(UsageError, match="another neighbouring relation"):
        JOINT_MECHANISMS[kind].calibrate(PublicFacts(facts.counts, facts.bound, other), LOSS, wanted)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_settings_of_every_mechanism_are_equal_when_they_are_read_again(mechanism, counts_of, bound_of):
    facts, statistic = facts_for(PerStatisticMechanism.kind, counts_of, bound_of), mechanism.statistics[0]
    loss = np.array(0.5) if mechanism.kind is LossKind.ZCDP else np.full(facts.counts.bins, 0.5)
    frozen = PerStatisticMechanism(
        facts, {statistic: StatisticMechanism(mechanism.name, loss)}, mechanism.kind
    ).to_facts()
    assert json.loads(json.dumps(frozen, allow_nan=False)) == frozen
