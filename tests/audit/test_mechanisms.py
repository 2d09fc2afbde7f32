"""Claimed epsilons against what draws prove; mistakes made on purpose must be caught.

The confidence is 1 - 10^-9 throughout, so a failure is not chance. Draws are seeded: NumPy's laws equal
those of a release (tests/distribution, tests/unit/noise).
"""

import numpy as np
import pytest
from step_audits import audit_steps, busy_neighbours

from trafficdp.audit.lower_bound import audit_draws, audit_mechanism, estimate_draws, runs_one_at_a_time
from trafficdp.audit.neighbours import agreeing_neighbours
from trafficdp.audit.wrong import mistakes
from trafficdp.mechanisms.per_statistic.huber import Huber
from trafficdp.mechanisms.per_statistic_map import MECHANISMS, mechanism_named, mechanisms_of
from trafficdp.mechanisms.protocol import ClaimedNoise, StatisticRequest
from trafficdp.model import Statistic
from trafficdp.noise import student_t
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.conversion import zcdp_to_approx
from trafficdp.privacy.loss import ZCDP, LossKind

CERTAIN = 1 - 1e-9
FEW = 4_000
"""Draws on each data set that refute a quarter of the noise."""
CASES = [(m, s) for m in mechanisms_of(LossKind.PURE) for s in m.statistics]
MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
PLANS = {"plan": MEAN, "plan_l1": MEAN, "plan_public_scaling": MEAN, "plan_without_scaling": None}
"""Of which statistic a form of PLAN is audited whole in `make test`."""
TWO = {
    (name, VARIANCE)
    for name in (
        "fixed_quantile_best_fit",
        "levy_best_fit",
        "optimized_quantile_best_fit",
        "worst_case_clipping_exact",
    )
}
"""Variances that `make prove` alone audits: array averaging and the other clipping divide losses alike."""
KEEPS_SHARP = {"baseline", "pooled", "array_averaging_best_fit", "array_averaging_wrap_around"}


class Quieter(SimulatedNoise):
    """So many times less noise than is asked for."""

    def __init__(self, seed, times):
        super().__init__(seed)
        self.times = times

    def discrete_laplace(self, scale):
        return super().discrete_laplace(scale / self.times)

    def discrete_gaussian(self, sd):
        return super().discrete_gaussian(sd / self.times)

    def choose(self, cost, weight, start, scale, runs=1):
        return super().choose(cost, weight, start, scale / self.times, runs)


of_every_case = pytest.mark.parametrize(
    ("mechanism", "statistic"), CASES, ids=lambda case: getattr(case, "name", str(case))
)


def audited(mechanism, statistic, bound, noise, draws):
    return audit_mechanism(mechanism, statistic, 1.0, bound, noise, draws=draws, confidence=CERTAIN)


@pytest.mark.parametrize(
    ("mechanism", "statistic"),
    [
        # wrap around is best fit with samples in arrays of another order, and both parts of these variances
        # are drawn as the means are
        pytest.param(
            m, s, marks=pytest.mark.prove if m.name.endswith("wrap_around") or (m.name, s) in TWO else ()
        )
        for m, s in CASES
    ],
    ids=lambda case: getattr(case, "name", str(case)),
)
def test_no_draws_refute_the_claim(mechanism, statistic, bound_of):
    # a variance shows one number of two that were measured, and both were paid
    sharp = mechanism.name in KEEPS_SHARP and statistic is not VARIANCE
    found = audited(mechanism, statistic, bound_of(64), SimulatedNoise(11), 10_000 if sharp else FEW)
    assert found.epsilon <= 1.0, found
    if sharp:
        # the neighbours are adversarial enough to come close
        assert found.epsilon > 0.6, found


@pytest.mark.prove(cheap="test_no_draws_refute_the_claim")
@of_every_case
def test_few_draws_refute_a_quarter_of_the_noise_and_many_not_the_whole(mechanism, statistic, bound_of):
    found = audited(mechanism, statistic, bound_of(64), Quieter(11, 4), FEW)
    assert found.epsilon > 1.0, found
    found = audited(mechanism, statistic, bound_of(64), SimulatedNoise(11), 40_000)
    assert found.epsilon <= 1.0, found


@pytest.mark.parametrize(
    ("mechanism", "statistic"),
    [
        # variances of PLAN are drawn by what is audited on its means, and these with and without scaling
        pytest.param(m, s, marks=pytest.mark.prove if PLANS.get(m.name, s) is not s else ())
        for m in mechanisms_of(LossKind.ZCDP)
        for s in m.statistics
    ],
    ids=lambda case: getattr(case, "name", str(case)),
)
def test_no_draws_refute_the_epsilon_that_follows_from_rho(mechanism, statistic, bound_of):
    draws = 200 if runs_one_at_a_time(mechanism) else 4_000
    claim, found = of_rho(mechanism, statistic, bound_of(64), SimulatedNoise(14), draws)
    assert found.epsilon <= claim, found


@pytest.mark.parametrize("name", ["gaussian_twin", "plan_public_scaling"])
def test_draws_refute_the_same_with_a_fortieth_of_the_noise(name, bound_of):
    """So that the audit of so few draws could find a mechanism wrong."""
    mechanism = mechanism_named(name, LossKind.ZCDP)
    claim, found = of_rho(mechanism, Statistic.MEAN, bound_of(64), Quieter(1, 40), 200)
    assert found.epsilon > 2 * claim, found


def of_rho(mechanism, statistic, bound, noise, draws, rho=0.02, delta=0.01):
    """The epsilon at delta that follows from rho, and what so many draws on each data set prove."""
    claim = float(zcdp_to_approx(ZCDP.of(rho), delta).epsilon)
    return claim, audit_mechanism(
        mechanism, statistic, rho, bound, noise, delta=delta, draws=draws, confidence=CERTAIN
    )


LONG = ("wrap_around", "plan_l1", "plan_public_scaling", "plan_without_scaling")
SLOW = {("plan", VARIANCE), *TWO}


def losses(mechanism, statistic):
    """Epsilons or rhos at which half of the noise shows; of two, each step shows at one at least."""
    if mechanism.kind is LossKind.ZCDP:
        # the choices of PLAN are cheap beside its noise
        return (1.0, 6.0) if mechanism.name.startswith("plan") else (0.5,)
    # a variance has two parts, of two thirds and of one third
    return (4.5, 9.0) if statistic is VARIANCE else (3.0,)


@pytest.mark.parametrize(
    ("mechanism", "statistic", "few"),
    [
        pytest.param(m, s, few, marks=() if few else pytest.mark.prove)
        for m in MECHANISMS
        for s in m.statistics
        for few in ([False] if m.name.endswith(LONG) or (m.name, s) in SLOW else [True, False])
    ],
    ids=lambda case: getattr(case, "name", str(case)),
)
def test_every_step_keeps_its_own_price_and_half_of_its_noise_is_refuted(
    mechanism, statistic, few, bound_of, monkeypatch
):
    """Every choice and every sum is drawn on some pair, at a price above 0, by itself.

    With half of the noise the bound is above the claim for every step, at the confidence CERTAIN. A third of
    the pairs are enough for that, of either number of vehicles, and the two of what is seldom.
    """
    pairs, draws = busy_neighbours(bound_of(64)), 20_000
    if few:
        pairs = pairs[1:-2:3] + pairs[-2:]
    if mechanism.name.startswith("plan") and statistic is VARIANCE:
        # choices that are shown by what is seldom chosen
        draws = 100_000
    else:
        # so few choose a pair on which half of the noise shows
        monkeypatch.setattr("step_audits.TRIALS", 400)
    steps, refuted = None, set()
    for loss in losses(mechanism, statistic):
        given = np.full(1, loss) if mechanism.kind is LossKind.PURE else np.array(loss)
        stated = mechanism.steps(
            StatisticRequest(pairs[0].left.counts, pairs[0].left.bound, statistic, given)
        )
        steps = set(range(sum(not isinstance(step, ClaimedNoise) for step in stated)))
        sound, quiet = (
            audit_steps(mechanism, statistic, loss, pairs, noise, draws=draws, confidence=CERTAIN)
            for noise in (SimulatedNoise(31), Quieter(32, 2))
        )
        assert {each.place for each in sound} == {each.place for each in quiet} == steps
        for each in sound:
            assert each.found.epsilon <= each.claim, each
        refuted |= {each.place for each in quiet if each.found.epsilon > each.claim}
    assert refuted == steps


@pytest.mark.parametrize(
    ("statistic", "more", "draws"),
    [
        (MEAN, 0, 5_000),
        pytest.param(Statistic.VEHICLE_MEAN, 0, 10_000, marks=pytest.mark.prove),
        pytest.param(MEAN, 4, 8_000, marks=pytest.mark.prove),
    ],
)
def test_half_of_the_noise_of_huber_is_refuted_and_the_whole_is_not(
    statistic, more, draws, bound_of, monkeypatch
):
    """On two data sets on which a bin is released by Huber, with its settings of a release."""
    epsilon, mechanism = 2.0, mechanism_named("huber", LossKind.PURE)
    bound = bound_of(64)
    (pair,) = agreeing_neighbours(bound, 75 if more else 55, 400, more=more)[1:2]
    by_huber = Huber().plan(StatisticRequest(pair.left.counts, bound, statistic, np.array([epsilon]))).huber
    assert by_huber.tolist() == [True]

    def audited():
        given = {"draws": draws, "confidence": CERTAIN}
        if more:
            # slower: the audit itself draws where all vehicles weigh the same
            return audit_draws(
                estimate_draws(mechanism, statistic, epsilon), [pair], SimulatedNoise(15), **given
            )
        return audit_mechanism(mechanism, statistic, epsilon, bound, SimulatedNoise(15), **given)

    kept = audited()
    assert 0.4 < kept.epsilon <= epsilon, kept
    whole_draw = student_t.draw
    monkeypatch.setattr(student_t, "draw", lambda *given: whole_draw(*given) / 2)
    refuted = audited()
    assert refuted.epsilon > epsilon, refuted
    assert refuted.label == pair.label


@pytest.mark.parametrize("index", range(7))
@pytest.mark.parametrize("many", [40_000, pytest.param(100_000, marks=pytest.mark.prove)])
def test_mistakes_are_caught_and_their_right_twins_are_not(index, many, bound_of):
    mistake = mistakes(bound_of(64))[index]

    def audit(draws):
        return audit_draws(
            draws,
            mistake.pairs,
            SimulatedNoise(12),
            draws=many,
            confidence=CERTAIN,
            delta=mistake.delta,
        )

    caught = audit(mistake.wrong)
    assert caught.epsilon > mistake.claim, caught
    if mistake.right is not None:
        kept = audit(mistake.right)
        assert kept.epsilon <= mistake.claim, kept
        # the neighbours would show a loss not much above the claim
        assert kept.epsilon > 0.3 * mistake.claim, kept


def test_every_mistake_is_among_those_tested(bound_of):
    assert len(mistakes(bound_of(64))) == 7


def test_the_result_says_on_what_it_rests(bound_of):
    mistake = mistakes(bound_of(64))[0]
    found = audit_draws(mistake.wrong, mistake.pairs, SimulatedNoise(13), draws=2_000, confidence=0.99)
    assert found.draws == 2_000
    assert found.confidence == 0.99
    assert found.label in {pair.label for pair in mistake.pairs}
    assert np.isfinite(found.epsilon)
