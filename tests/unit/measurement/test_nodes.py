"""The bank of running sums with signed digits: the same promises, less noise."""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.errors import AllocationError, UsageError
from trafficdp.measurement.laws import EntryIndex
from trafficdp.measurement.nodes import exact_price, signed_nodes_touched
from trafficdp.measurement.sets import Moments
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import PureDP
from trafficdp.stream.tree import SignedCounterBank, Tree, TreeKind

ZERO = np.array([0])


class Numbered:
    """Noise 1, 10^5 + 1, ...: every draw can be told from every other."""

    def __init__(self):
        self.drawn = 0

    def discrete_laplace(self, scale):
        self.drawn += len(scale)
        return np.arange(self.drawn - len(scale), self.drawn) * 10**5 + 1


def append(bank, bins, sums):
    """One vehicle sends ``sums`` (2, B), and may lose what it likes."""
    bins = np.array(bins)
    entries = EntryIndex(np.zeros_like(bins), np.arange(len(bins)), 1, len(bins))
    of = Moments(entries, np.full(len(bins), 1000), 1000, np.ones(len(bins), dtype=bool))
    bank.append(bins, of, np.array(sums), np.zeros(1, dtype=np.int64), PureDP(10**30))


@pytest.mark.parametrize(("arity", "heights"), [(3, 3), (5, 2), (7, 2)])
def test_every_published_sum_carries_the_noises_of_its_nodes_which_never_change(arity, heights):
    noise = Numbered()
    bank = SignedCounterBank(1, 1, arity, heights, np.array(5.0))
    tree = Tree(arity, TreeKind.SIGNED)
    known = {}
    for t in range(1, bank.length + 1):
        append(bank, ZERO, [[t], [0]])
        sums = bank.sums(noise)
        ends, starts = tree.edges(np.array(t), bank.length)
        expected = t * (t + 1) // 2
        for j, (end, start) in enumerate(zip(ends, starts, strict=True)):
            for node in range(min(end, start), max(end, start)):
                slot = int(node - start + (arity - 1) // 2)
                draw = known.setdefault((j, node), bank.noise[0, j, slot])
                assert draw == bank.noise[0, j, slot]
                expected += int(np.sign(end - start)) * draw
        assert sums[0, 0] == bank.sums(noise)[0, 0] == expected
        assert bank.terms()[0, 0] == tree.variance(np.array(t), bank.length)
    assert noise.drawn == len(known) == len(set(known.values()))
    assert bank.counts()[0, 0] == bank.length
    before = bank.state()
    with pytest.raises(UsageError, match="stream is full"):
        append(bank, ZERO, [[1], [0]])
    assert all((before[name] == bank.state()[name]).all() for name in before)


@pytest.mark.parametrize(("arity", "heights"), [(3, 1), (3, 3), (5, 2), (9, 2)])
def test_prices_are_those_of_the_tree(arity, heights):
    length = (arity**heights - 1) // 2
    position = np.arange(1, length + 1)
    exact = Tree(arity, TreeKind.SIGNED).nodes_per_element(length)
    claimed = signed_nodes_touched(position, arity, heights)
    assert (exact <= claimed).all()
    assert exact.max() == claimed.max() == heights
    # a longer stream reaches the nodes that this one does not
    longer = Tree(arity, TreeKind.SIGNED).nodes_per_element((arity ** (heights + 2) - 1) // 2)[:length]
    np.testing.assert_array_equal(longer, signed_nodes_touched(position, arity, heights + 2))


@pytest.mark.parametrize(("arity", "heights"), [(3, 3), (5, 2), (9, 2)])
def test_an_element_pays_for_every_node_that_a_published_sum_may_need_and_holds_it(arity, heights):
    """By brute force: all nodes that the sums of a full stream need, and which elements lie in each."""
    half, length = (arity - 1) // 2, (arity**heights - 1) // 2
    used = set()
    for q in range(1, length + 1):
        for height in range(heights):
            above = (q + half) // arity
            used |= {(height, node) for node in range(*sorted((q, arity * above)))}
            q = above
    held = [
        sum(node * arity**height < element <= (node + 1) * arity**height for height, node in used)
        for element in range(1, length + 1)
    ]
    bank, touches = SignedCounterBank(1, 1, arity, heights, np.full(1, 4.0)), np.zeros(1, dtype=np.int64)
    one = np.zeros(1, dtype=np.int64)
    of = Moments(EntryIndex(one, one, 1, 1), np.array([2]), 3, np.array([False]))
    for records in held:
        more = bank.append(one, of, np.zeros((2, 1)), touches, PureDP.of(10**5))
        # two records: twice the touches
        assert (more - touches).tolist() == [2 * records]
        touches = more
    assert max(held) == heights
    # and no less is enough: the next element after so many touches is refused, at the charge of these
    again = SignedCounterBank(1, 1, arity, heights, np.full(1, 4.0))
    exact = PureDP(-(-int(touches[0]) * 3 * 10**12 // 4))
    spent = np.zeros(1, dtype=np.int64)
    for _ in held[:-1]:
        spent = again.append(one, of, np.zeros((2, 1)), spent, exact)
    with pytest.raises(AllocationError):
        again.append(one, of, np.zeros((2, 1)), spent, PureDP(exact.pico - 1))
    again.append(one, of, np.zeros((2, 1)), spent, exact)


def test_batches_streams_and_restarts_do_not_change_a_sum():
    random = np.random.default_rng(4)
    bank = SignedCounterBank(5, 2, 9, 3, np.array(4.0))
    exact, noise, nobody = np.zeros((5, 2), dtype=int), SimulatedNoise(5), Numbered()
    for _ in range(60):
        bins = np.flatnonzero(random.integers(0, 2, 5))
        value, before = random.integers(100, 200, (2, len(bins))), bank.counts()
        append(bank, bins, value)
        exact[bins] += value.T
        before[bins] += 1
        np.testing.assert_array_equal(bank.counts(), before)
        sums = bank.sums(noise)
        bank = SignedCounterBank.from_state(bank.state())
        np.testing.assert_array_equal(bank.sums(nobody), sums)
    assert nobody.drawn == 0
    silent = bank.state()
    silent["noise"] = silent["noise"] * 0
    np.testing.assert_array_equal(SignedCounterBank.from_state(silent).sums(nobody), exact)
    bank.grow(6, np.array(9.0))
    assert bank.sums(nobody)[5].tolist() == [0, 0]
    assert bank.scale[-1] == 9.0


def test_a_release_draws_exact_noise():
    bank = SignedCounterBank(3, 2, 5, 4, np.array(10.0))
    append(bank, [0, 2], [[5, 6], [7, 8]])
    assert bank.sums(SecureNoise()).shape == (3, 2)
    assert bank.drawn.any(axis=(1, 2)).tolist() == [True, True, False, False, True, True]


@pytest.mark.parametrize(
    "make",
    [
        lambda: SignedCounterBank(1, 1, 4, 2, np.array(1.0)),
        lambda: SignedCounterBank(1, 3, 5, 2, np.array(1.0)),
        lambda: SignedCounterBank(1, 1, 101, 40, np.array(1.0)),
        lambda: SignedCounterBank(1, 1, 5, 2, np.array(-1.0)),
        lambda: append(SignedCounterBank(1, 1, 5, 2, np.array(1.0)), [1], [[0], [0]]),
        lambda: append(SignedCounterBank(2, 1, 5, 2, np.array(1.0)), [1, 0], [[1, 1], [0, 0]]),
        lambda: append(SignedCounterBank(2, 1, 5, 2, np.array(1.0)), [-1], [[0], [0]]),
        lambda: SignedCounterBank.from_state(
            {**SignedCounterBank(2, 2, 5, 2, np.array(1.0)).state(), "total": np.zeros(3)}
        ),
    ],
)
def test_what_does_not_fit_is_refused(make):
    with pytest.raises(UsageError):
        make()


def town(count, steps=10, second=True):
    """Two vehicles in two bins: entries (bin 0: both, bin 1: the second)."""
    entries = EntryIndex(np.array([0, 1, 1]), np.array([0, 0, 1]), 2, 2)
    return Moments(entries, np.array(count), steps, np.array([second, second]))


def test_what_is_appended_is_clamped_and_paid_at_the_scales_of_the_bank():
    bank = SignedCounterBank(2, 2, 3, 2, np.array([30.0, 300.0]))
    of = town([2, 1, 1])
    values = np.array([[10**9, -5, 7], [10**9, 3, 10**9]])
    both = np.array([0, 1])
    touches = bank.append(both, of, values, np.zeros(2, dtype=np.int64), PureDP.of("1.9"))
    # a first element lies in both of its heights' nodes
    assert touches.tolist() == [4, 4]
    assert bank.total.reshape(2, 2).tolist() == [[20 + 0, 0], [7, 21]]
    # records cost 10/30 a node: four touches are 4/3, and the second element's two more are 2
    with pytest.raises(AllocationError, match="than it was charged"):
        bank.append(both, of, values, touches, PureDP.of("1.9"))
    assert bank.counts().tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("scales", [(15.0, 300.0), (30.0, 75.0)], ids=["sums", "products"])
def test_a_bank_with_less_noise_than_the_account_says_draws_nothing(scales):
    bank = SignedCounterBank(2, 2, 3, 2, np.array(scales))
    nothing = np.zeros(2, dtype=np.int64)
    charge = PureDP.of(Fraction(4, 3))
    with pytest.raises(AllocationError):
        bank.append(np.array([0, 1]), town([2, 1, 1]), np.zeros((2, 3)), nothing, charge)


@pytest.mark.parametrize(("steps", "first", "second"), [(10, 30, 300), (10, 30, 40), (7, 3, 5), (1, 2, 9)])
def test_the_price_of_a_record_is_the_dearest_of_its_moves(steps, first, second):
    one, two = Fraction(first), Fraction(second)
    expected = max(d / one + d * (steps - d) / two for d in range(steps + 1))
    assert exact_price(steps, one, two) == expected
    assert exact_price(steps, one) == steps / one
