"""The askings of ``hidden_design``: a vehicle's vectors follow from its own records and the answers alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.measurement.measure import Measure
from trafficdp.mechanisms.pooling.hidden_counts import CountAnswers, lengths_of, reach_of
from trafficdp.mechanisms.pooling.hidden_design import HiddenDesign
from trafficdp.mechanisms.pooling.hidden_map import (
    FIRST_GUESS,
    Answers,
    centres_of,
    city_of,
    lift_of,
    lifted_weight,
    likely_variance,
    map_of,
    next_map,
)
from trafficdp.model import number_pairs
from trafficdp.sensitive.values import Contributions, Entries

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def asked(design: HiddenDesign, contributions: Contributions, measure: Measure) -> Answers:
    """Ask all, and return the answers. Records elsewhere count as none."""
    counts = contributions.counts
    user, place, records, speed = _by_place(design, contributions)
    fleet = _asked_fleet(design, user, speed, counts.users, measure)
    city = city_of(design, fleet)

    own_weight = records**city.power
    length = _by_user(user, own_weight**design.norm, counts.users) ** (1 / design.norm)
    own_weight = own_weight / length[user]
    many = design.size
    weight = measure.measure(design.step(1, many, 1.0), Entries(user, place, own_weight))

    lift, lifted = lift_of(design, weight), lifted_weight(design, weight)
    residual, maps = np.zeros((design.rounds, many), dtype=np.int64), np.zeros((design.rounds, many))
    newest = centres_of(design, city, weight)
    for each in range(design.rounds):
        maps[each] = newest
        off = Entries(user, place, lift[place] * own_weight * (speed - newest[place]))
        residual[each] = measure.measure(design.step(2 + each, many, city.reach_in(each)), off)
        newest = next_map(design, city, lifted, residual[: each + 1], maps[: each + 1])
    nothing = np.zeros(0, dtype=np.int64)
    answers = Answers(fleet, city, weight, residual, maps, nothing)
    if design.variance:
        answers = replace(answers, spread=_asked_spread(design, answers, contributions, measure))
    if design.counts:
        vectors = Entries(user, place, np.ones(len(user))), Entries(user, place, records.astype(np.float64))
        answers = replace(answers, counts=_asked_counts(design, vectors, city.vehicles, measure))
    return answers


def _asked_counts(
    design: HiddenDesign, vectors: tuple[Entries, Entries], vehicles: float, measure: Measure
) -> CountAnswers:
    own, which = np.unique(vectors[0].user, return_inverse=True)
    size = [np.bincount(which, each.value**design.norm, len(own)) ** (1 / design.norm) for each in vectors]
    lengths = measure.measure(
        design.step(design.of_counts, 2, design.lengths_bound),
        Entries(np.tile(own, 2), np.repeat([0, 1], len(own)), lengths_of(np.stack(size)).ravel()),
    )
    reach = reach_of(design, lengths, vehicles)
    found = [
        measure.measure(design.step(design.of_counts + 1 + each, design.size, float(reach[each])), vector)
        for each, vector in enumerate(vectors)
    ]
    return CountAnswers(lengths, reach, np.stack(found))


def _asked_spread(
    design: HiddenDesign, answers: Answers, contributions: Contributions, measure: Measure
) -> IntArray:
    counts, unit, city = contributions.counts, float(design.bound.step), answers.city
    at, there = _where(design, contributions)
    user, place, entry = number_pairs(counts.user_index[there], at[there], counts.users, design.size)
    sizes = (counts.count, contributions.total, contributions.total_of_squares)
    records, total, squares = (np.bincount(entry, each[there], len(user)) for each in sizes)
    own = np.unique(user)
    found = map_of(design, answers)
    about = (squares * unit - 2 * found[place] * total) * unit / records + found[place] ** 2
    relative = about / likely_variance(design, city, found)[place]
    share = records / _by_user(user, records, counts.users)[user]
    far = np.clip(_by_user(user, share * relative, counts.users)[own] - 1, -1.0, 1.0)
    one = Entries(own, np.zeros(len(own), dtype=np.int64), far)
    return measure.measure(design.step(2 + design.rounds, 1, 1.0), one)


def asked_fleet(design: HiddenDesign, contributions: Contributions, measure: Measure) -> IntArray:
    """Ask how many vehicles there are, as far as they are fast and as far as they are slow, shape (2,)."""
    user, _, _, speed = _by_place(design, contributions)
    return _asked_fleet(design, user, speed, contributions.counts.users, measure)


def _asked_fleet(
    design: HiddenDesign, user: IntArray, speed: FloatArray, users: int, measure: Measure
) -> IntArray:
    """Ask about means over a vehicle's places: over records they would be those of where it waits."""
    own, guess = np.unique(user), FIRST_GUESS * design.upper
    mean = _by_user(user, speed, users)[own] / np.bincount(user, minlength=users)[own]
    lean = np.clip((mean - guess) / guess, -1.0, 1.0)
    both = Entries(
        np.tile(own, 2), np.repeat([0, 1], len(own)), np.concatenate([(1 + lean) / 2, (1 - lean) / 2])
    )
    return measure.measure(design.step(0, 2, 1.0), both)


def _by_place(
    design: HiddenDesign, contributions: Contributions
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Vehicle, place, records and mean speed of every place of a vehicle that is asked about."""
    counts, unit = contributions.counts, float(design.bound.step)
    at, there = _where(design, contributions)
    user, place, entry = number_pairs(counts.user_index[there], at[there], counts.users, design.size)
    records, total = (
        np.bincount(entry, each[there], len(user)) for each in (counts.count, contributions.total)
    )
    return user, place, records, total * unit / records


def _where(design: HiddenDesign, contributions: Contributions) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """The place of every pair, shape (P,), and whether it is one that is asked about."""
    counts = contributions.counts
    at, there = design.where(counts.cell, counts.slot)
    return at[counts.bin_index], there[counts.bin_index]


def _by_user(user: IntArray, values: npt.NDArray[Any], users: int) -> FloatArray:
    return np.bincount(user, values, users).astype(np.float64)
