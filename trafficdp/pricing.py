"""A second computation of what a release costs, which shares no code with the first.

Exact losses against charges: fractions, added up a vehicle and compared without rounding.

A second opinion before a charge: every vehicle's loss from the steps alone, in fractions.

Nothing here shares code with the prices of the measurement layer: moves are Python integers, scales the
exact fractions that their floats are, and a loss is compared with its charge without rounding.

============  =========================================================================================
set, law      a vehicle loses, D its move of a sum times 2^shift (rounded up where that floors)
============  =========================================================================================
any, Laplace  sum D / b
any, Gaussian sum D^2 / (2 s^2)
any, Block    sum over blocks of the largest ceil(D / a), over s
pairs         m times the most over d = 0..K of d/b + d (K - d)/b', plus 1/b' where W is floored
in blocks     the most over bins g, h of a block of ceil(|dS_g|/a_g) + ceil(|dW_h|/a'_h), over s
a ball        2^21 grains, or less by its entries' intervals, over b; their square over 2 s^2
hidden ball   2^20 grains over b; their square over 2 s^2, any possible vehicle
a choice      2 c / scale; in rho an eighth of the square
============  =========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.errors import AllocationError
from trafficdp.measurement.laws import GRAINS, Block, EntryIndex, Gaussian, Laplace
from trafficdp.measurement.sets import AddRemoveBall, Ball, Box, Moments, Priced, Ranks, Step
from trafficdp.mechanisms.protocol import ClaimedNoise, ClaimedScores, ClaimedSums
from trafficdp.privacy.loss import LossKind

ObjectArray = npt.NDArray[np.object_]
PICO = 10**12
FRACTION_BITS = 30
"""Losses are added as whole 2^-30 of a unit of charges, rounded down; what that leaves open is exact."""


@dataclass(frozen=True)
class Losses:
    """Entry t: vehicle ``user[t]`` loses ``numerator[t]`` / ``denominator[t]``; Python integers, (T,)."""

    user: IntArray
    numerator: ObjectArray
    denominator: ObjectArray


def laplace_losses(user: IntArray, change: ObjectArray, scale: FloatArray) -> Losses:
    """Return the exact losses ``change`` / ``scale``, as of Laplace noise, where the change is above 0.

    One loss an entry, nothing is summed; no speed is read. ``user`` (n,) is the vehicle of each entry,
    ``change`` (n,) are Python integers, ``scale`` (n,) in the same unit counts as the exact fractions that
    its floats are. Raises AllocationError where something changes and its scale is not above 0 and finite.
    """
    varies = np.flatnonzero(change > 0)
    user, change, scale = user[varies], change[varies], scale[varies]
    if not bool(np.all(np.isfinite(scale) & (scale > 0))):
        raise insufficient_charge_error("a number that can vary would have no noise")
    above, below = as_ratio(scale)
    return Losses(user, change * below, above)


def as_ratio(number: FloatArray) -> tuple[ObjectArray, ObjectArray]:
    """Return finite floats ``number`` as exact fractions.

    Numerators and denominators are Python integers, each of the shape of ``number``.
    """
    distinct, which = np.unique(number, return_inverse=True)
    ratios = [value.as_integer_ratio() for value in distinct.tolist()]
    above = np.array([top for top, _ in ratios] + [0], dtype=object)[:-1]
    below = np.array([bottom for _, bottom in ratios] + [0], dtype=object)[:-1]
    return above[which], below[which]


def require_covered(losses: Callable[[], Iterable[Losses]], charged: IntArray) -> None:
    """Raise AllocationError if a vehicle's ``losses`` add up to more than ``charged`` (users,), in 10^-12.

    ``losses`` yields them part by part; it is called again where only exact fractions can decide.
    """
    whole, rest, terms = (np.zeros(len(charged), dtype=np.int64) for _ in range(3))
    for each in losses():
        scaled = (each.numerator * (PICO << FRACTION_BITS)) // each.denominator
        if len(scaled) and max(scaled) >> FRACTION_BITS >= 1 << 60:
            raise insufficient_charge_error("a loss that is too large to account for")
        np.add.at(whole, each.user, (scaled >> FRACTION_BITS).astype(np.int64))
        np.add.at(rest, each.user, (scaled & ((1 << FRACTION_BITS) - 1)).astype(np.int64))
        np.add.at(terms, each.user, 1)
        # at most 2^31 terms would carry over; a carry a round keeps both far from 64 bits
        whole += rest >> FRACTION_BITS
        rest &= (1 << FRACTION_BITS) - 1
    # every term was rounded down by less than one 2^-30
    most = whole + ((rest + terms) >> FRACTION_BITS) + 1
    short = int(np.count_nonzero(whole > charged))
    open_ones = (whole <= charged) & (most > charged)
    if not short and bool(open_ones.any()):
        exact = _summed(losses(), open_ones)
        short = sum(loss * PICO > int(charged[user]) for user, loss in exact.items())
    if short:
        raise insufficient_charge_error(f"{short} vehicles would lose more than they are charged")


def _summed(losses: Iterable[Losses], chosen: BoolArray) -> dict[int, Fraction]:
    """Return the exact sum of the losses of every chosen vehicle.

    Losses over the same denominator are added as integers first: most have few denominators.
    """
    found: dict[int, Fraction] = {}
    for each in losses:
        mine = np.flatnonzero(chosen[each.user])
        distinct = sorted(set(each.denominator[mine].tolist()))
        which = np.searchsorted(np.array([*distinct, 0], dtype=object)[:-1], each.denominator[mine])
        key, group = np.unique(each.user[mine] * max(1, len(distinct)) + which, return_inverse=True)
        total = np.zeros(len(key), dtype=object)
        np.add.at(total, group, each.numerator[mine])
        for one, numerator in zip(key.tolist(), total.tolist(), strict=True):
            user, below = divmod(one, len(distinct))
            found[user] = found.get(user, Fraction(0)) + Fraction(numerator, distinct[below])
    return found


def insufficient_charge_error(reason: str) -> AllocationError:
    """Return (do not raise) the error of an allocation whose charge does not cover some vehicle's loss.

    ``reason`` says what is wrong, without any vehicle's numbers.
    """
    return AllocationError(
        "the allocation does not hold",
        got=reason,
        expected="a charge that covers every vehicle's exact loss",
        todo="nothing was charged; report this: it is an error of trafficdp or of an altered plan",
    )


def largest_quadratic(
    count: ObjectArray, samples: ObjectArray, linear: ObjectArray, bend: ObjectArray
) -> ObjectArray:
    """Return the whole k in 0..``count`` with the largest k ``linear`` + k (``samples`` - k) ``bend``.

    Elementwise, shape (n,), Python integers; ``linear`` and ``bend`` are at least 0.
    """
    safe = np.where(bend > 0, bend, 1)
    # the k-th step is linear + (N - 2 k + 1) bend: above 0 while 2 k bend < linear + (N + 1) bend
    last = (linear + (samples + 1) * safe - 1) // (2 * safe)
    return np.where(bend > 0, np.minimum(last, count), count)


CHUNK = 500_000
"""Entries at a time: Python integers take memory."""
MOST = (1 << 63) - 1


def check_steps(steps: Sequence[Priced], charged: IntArray) -> None:
    """Raise AllocationError if ``steps`` cost some vehicle more than ``charged`` (users,), in 10^-12.

    A second computation of all losses, in exact fractions. Raised also for a number that could vary without
    noise, and for a set and law of noise that have no price here.
    """

    require_covered(lambda: chain.from_iterable(map(_losses, steps)), charged)


def _losses(step: Priced) -> Iterator[Losses]:
    """Yield what ``step`` costs the vehicles, exactly; raises as ``check_steps``."""
    if isinstance(step, Ranks):
        yield from _choice(step.support, np.ones(step.support.coordinates), step.scale, step.kind)
    elif isinstance(step, ClaimedScores):
        yield from _choice(step.support, step.change, step.scale, step.kind)
    elif isinstance(step, ClaimedNoise):
        yield Losses(step.support.user, *as_ratio(step.loss_per_entry))
    elif not isinstance(step, Step):
        raise insufficient_charge_error("a claim that has no price")
    elif isinstance(step.of, Ball | AddRemoveBall):
        yield _ball(step.of, step)
    elif isinstance(step.of, Moments):
        yield from _pairs(step.of, step)
    elif isinstance(step.of, Box | ClaimedSums):
        move = step.of.high if isinstance(step.of, Box) else step.of.move
        yield from _separate(step.of, move, step)
    else:
        raise insufficient_charge_error("a set that has no price")


def _separate(of: Box | ClaimedSums, move: IntArray, step: Step) -> Iterator[Losses]:
    support, law = of.support, step.law
    if isinstance(law, Block):
        units = _units(support, move, step.shift, law.half_width, law.block)
        yield _of_groups(support.user, law.block[support.coordinate], units, law.scale)
        return
    for part in _chunks(support):
        at, user = support.coordinate[part], support.user[part]
        change = _moved(move[part], step.shift[at]).astype(object)
        yield (
            laplace_losses(user, change, law.scale[at])
            if isinstance(law, Laplace)
            else _squares(user, change, law.sd[at])
        )


def _squares(user: IntArray, change: ObjectArray, sd: FloatArray) -> Losses:
    """Return the exact losses rho = ``change``^2 / (2 ``sd``^2) of Gaussian noise, entry by entry."""
    once = laplace_losses(user, change, sd)
    return Losses(once.user, once.numerator**2, 2 * once.denominator**2)


def _pairs(of: Moments, step: Step) -> Iterator[Losses]:
    law, bins = step.law, of.support.coordinates
    if isinstance(law, Block):
        yield _pairs_in_blocks(of, law, step.shift)
        return
    if not isinstance(law, Laplace) or bool(np.any(step.shift[:bins] != 0)):
        raise insufficient_charge_error("pairs of sums by a law that has no price")
    bare = ~(law.scale[:bins] > 0) | (of.second & ~(law.scale[bins:] > 0))
    if bool(bare.any()):
        raise insufficient_charge_error("a number that can vary would have no noise")
    for part in _chunks(of.support):
        at = of.support.coordinate[part]
        first, first_over = as_ratio(law.scale[:bins][at])
        second, second_over = as_ratio(np.where(of.second[at], law.scale[bins:][at], 1.0))
        spacing = _power(-step.shift[bins:][at])
        varies = of.second[at]
        # d/b and d (K - d)/(c b') over the common denominator below
        linear, bend = first_over * second * spacing, np.where(varies, second_over * first, 0)
        total = of.count[part].astype(object) * _dearest(of.steps, linear, bend)
        total = total + np.where(varies & (spacing > 1), second_over * first * spacing, 0)
        yield Losses(of.support.user[part], total, first * second * spacing)


def _pairs_in_blocks(of: Moments, law: Block, shift: IntArray) -> Losses:
    support, bins, at = of.support, of.support.coordinates, of.support.coordinate
    block, own = law.block[:bins], law.block[bins:]
    same = set(zip(block[of.second].tolist(), own[of.second].tolist(), strict=True))
    one_to_one = len(same) == len({a for a, _ in same}) == len({b for _, b in same})
    if not one_to_one or bool(np.any(block < 0)) or bool(np.any((own >= 0) != of.second)):
        raise insufficient_charge_error("pairs of sums in blocks that are not those of their bins")
    top = of.count * (of.steps // 2) * (of.steps - of.steps // 2)
    alone = _units(support, of.count * of.steps, shift[:bins], law.half_width[:bins], block)
    other = _units(support, np.where(of.second[at], top, 0), shift[bins:], law.half_width[bins:], own)
    both = np.concatenate([_together(of, law, shift, part) for part in _chunks(support)] or [alone])
    both = np.minimum(np.where(of.second[at], both, alone), alone + other)
    # of every (vehicle, block): in one bin, or the two dearest of different bins
    group = _numbered(support.user, block[at])
    most = np.zeros(int(group.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(most, group, both)
    for first, then in ((alone, other), (other, alone)):
        order = np.lexsort((-first, group))
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        leader = order[starts][group]
        beside = np.where(leader == np.arange(len(group)), 0, first[leader] + then)
        np.maximum.at(most, group, beside)
    user = np.zeros(len(most), dtype=np.int64)
    user[group] = support.user
    return _over(user, most, law.scale)


def _together(of: Moments, law: Block, shift: IntArray, part: slice) -> IntArray:
    """ceil(m p + flooring) + 1 of every pair of a part: both sums of one bin."""
    bins, at = of.support.coordinates, of.support.coordinate[part]
    down = [np.maximum(-each[at], 0) for each in (shift[:bins], shift[bins:])]
    up = [np.maximum(each[at], 0) for each in (shift[:bins], shift[bins:])]
    wide = [np.maximum(each[at], 1).astype(object) for each in (law.half_width[:bins], law.half_width[bins:])]
    # 2^up / (a 2^down) of either, over the common denominator below
    linear = _power(up[0]) * wide[1] * _power(down[1])
    bend = _power(up[1]) * wide[0] * _power(down[0])
    below = wide[0] * _power(down[0]) * wide[1] * _power(down[1])
    floored = np.where(down[0] > 0, wide[1], 0) + np.where(down[1] > 0, wide[0], 0)
    total = of.count[part].astype(object) * _dearest(of.steps, linear, bend)
    total = total + floored * _power(down[0]) * _power(down[1])
    return np.asarray(-(-total // below) + 1, dtype=np.int64)


def _dearest(steps: int, linear: ObjectArray, bend: ObjectArray) -> ObjectArray:
    """Return the largest d linear + d (K - d) bend over d = 0..K of every entry; K is ``steps``."""
    top = np.full(len(linear), steps, dtype=object)
    best = largest_quadratic(top, top, linear, bend)
    return np.asarray(best * linear + best * (steps - best) * bend)


def _ball(of: Ball | AddRemoveBall, step: Step) -> Losses:
    if isinstance(of, AddRemoveBall):
        far = np.array([GRAINS**of.norm], dtype=object)
    else:
        # sums of squares leave 64 bits: of their upper and lower halves by themselves
        far, moved = np.zeros(of.support.users, dtype=object), (of.high - of.low) ** of.norm
        for half, size in ((moved >> 32, 1 << 32), (moved & ((1 << 32) - 1), 1)):
            total = np.zeros(of.support.users, dtype=np.int64)
            np.add.at(total, of.support.user, half)
            far = far + total.astype(object) * size
        far = np.minimum(far, (2 * GRAINS) ** of.norm)
    user = np.arange(len(far))
    if of.norm == 1 and isinstance(step.law, Laplace):
        return laplace_losses(
            user, far, np.full(len(user), step.law.scale.min(initial=np.finfo(np.float64).max))
        )
    if of.norm == 2 and isinstance(step.law, Gaussian):
        sd = Fraction(float(step.law.sd.min(initial=np.finfo(np.float64).max)))
        square = 2 * sd * sd
        return Losses(user, far * square.denominator, np.full(len(user), square.numerator, dtype=object))
    raise insufficient_charge_error("a ball by a law that has no price")


def _choice(support: EntryIndex, change: FloatArray, scale: FloatArray, kind: LossKind) -> Iterator[Losses]:
    """Yield the losses of exponential mechanisms: 2 ``change`` / ``scale``, as rho its square over 8."""
    for part in _chunks(support):
        at, user = support.coordinate[part], support.user[part]
        above, below = as_ratio(2.0 * change[at])
        once = laplace_losses(user, above, scale[at])
        kept = above > 0
        found = Losses(once.user, once.numerator, once.denominator * below[kept])
        rho = kind is LossKind.ZCDP
        yield Losses(found.user, found.numerator**2, 8 * found.denominator**2) if rho else found


def _units(
    support: EntryIndex, move: IntArray, shift: IntArray, half_width: IntArray, block: IntArray
) -> IntArray:
    """Return ceil(D / a) of every entry, D its ``move`` times 2^``shift`` and a its ``half_width``.

    Raises AllocationError where something moves that has no noise.
    """
    found = [np.zeros(0, dtype=np.int64)]
    for part in _chunks(support):
        at = support.coordinate[part]
        if bool(np.any((move[part] > 0) & ((block[at] < 0) | (half_width[at] < 1)))):
            raise insufficient_charge_error("a number that can vary would have no noise")
        wide = np.maximum(half_width[at], 1)
        change = _moved(move[part], shift[at])
        if change.dtype == object:
            wide = wide.astype(object)
        found.append((-(-change // wide)).astype(np.int64))
    return np.concatenate(found)


def _of_groups(user: IntArray, block: IntArray, units: IntArray, scale: float) -> Losses:
    """Return every vehicle's loss: the largest of ``units`` in each of its blocks, summed, over ``scale``."""
    group = _numbered(user, block)
    most = np.zeros(int(group.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(most, group, units)
    owner = np.zeros(len(most), dtype=np.int64)
    owner[group] = user
    return _over(owner, most, scale)


def _over(user: IntArray, units: IntArray, scale: float) -> Losses:
    """Return every vehicle's loss: the sum of its ``units`` over the noise scale ``scale``."""
    total = np.zeros(int(user.max(initial=-1)) + 1, dtype=object)
    if bool(units.size) and int(units.max()) <= MOST // len(units):
        whole = np.zeros(len(total), dtype=np.int64)
        np.add.at(whole, user, units)
        total[:] = whole.tolist()
    else:
        np.add.at(total, user, units.astype(object))
    return laplace_losses(np.arange(len(total)), total, np.full(len(total), scale))


def _numbered(user: IntArray, block: IntArray) -> IntArray:
    """Return the number of the different (vehicle, block) pair of every entry, shape (n,).

    A block of -1 means no block.
    """
    key = user * (int(block.max(initial=0)) + 2) + block + 1
    return np.asarray(np.unique(key, return_inverse=True)[1], dtype=np.int64)


def _moved(move: IntArray, shift: IntArray) -> IntArray | ObjectArray:
    """``move`` times 2^shift, rounded up; Python integers where 64 bits might not hold it."""
    up, down = np.maximum(shift, 0), np.maximum(-shift, 0)
    longest = max(int(move.max(initial=0)), -int(move.min(initial=0))).bit_length()
    if longest + int(up.max(initial=0)) < 62 and int(down.max(initial=0)) < 62:
        return -(-(move << up) // (np.int64(1) << down))
    wide = move.astype(object) * _power(np.maximum(shift, 0))
    return np.asarray(-(-wide // _power(np.maximum(-shift, 0))))


def _power(exponent: IntArray) -> ObjectArray:
    """2^exponent as Python integers; 1 for one below 0."""
    distinct, which = np.unique(np.maximum(exponent, 0), return_inverse=True)
    return np.array([1 << each for each in distinct.tolist()] + [0], dtype=object)[:-1][which.ravel()]


def _chunks(support: EntryIndex) -> Iterator[slice]:
    for start in range(0, len(support.user), CHUNK):
        yield slice(start, min(start + CHUNK, len(support.user)))
