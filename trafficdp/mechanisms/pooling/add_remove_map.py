"""What ``add_remove_design`` asks vehicles, and the map, intervals, variance and counts that answers make.

Only the askings, from ``measure_all`` on, see values: a vehicle's vectors follow from its own records and the
answers before. All above them sees a design and answers alone, and is free.

**Lift.** W+ is the posterior mean of a place's weight under a flat prior on weights above 0. All noise of a
round is alike, so residuals where little weight is are made longer before it, and others shorter:
G = a W+^-0.4, with a^2 = sum W+ / sum W+ W+^-0.8 over places where W is above half a noise sd, which keeps
the usual length of a vehicle's vector; G = 1 where there is no such place. G is a function of the noisy W.

**Centres.** Where many drive it is slow. A place is expected at mu = c b W+^-0.2, cut to c/1.5..1.5 c; b is
such that sum W+ mu = c sum W+ over the same places, but for that cut; mu = c where there is no such place.
Speeds that are known before move it by m (``posterior.known_centre``). Whether by less would be right is
learnt from the answers: then a place is expected at mu + b m, b the posterior mean, in the model below, of
one number for all places, N(0, KNOWN_SD^2) before. It is 0 at most: a map that followed further would be
surer of what is wrong in those speeds too.

**Map.** With V = G W+, y and k the means of the answers Y_i and maps K_i so far, weighed by 1/s_i^2, s_i the
noise of round i, and s the noise of y, the answers say o = y + V (k - mu), about V (theta - mu). Places are
N(mu, tau^2), tau = U/12 (in pure epsilon U/10), and alike under one H3 parent: theta = mu + a + e, a of
variance 0.3 tau^2, one for all places of the parent (in the same slot; zones are alone), e of the rest. K_1
is mu; the next round asks about the posterior mean of theta, cut to 0..U; the last one is the map. With
D = 0.7 tau^2 V^2 + s^2 the mean of a is (sum V o / D) / (1/(0.3 tau^2) + sum V^2 / D), over its places, that
of e is 0.7 tau^2 V (o - V a) / D. In pure epsilon, with one round, parents help nothing, and the weight is
integrated out instead (``_refined``).

**Posterior** (``posterior``). Prior: about mu, of spread SPREAD of lambda. Likelihood: every round by itself,
Y_j = G W A_j(D) D + noise, D the distance from the map that it asked about, A_j the share of it that the clip
leaves of a vehicle whose residuals are about OTHERS L and ALIKE |D| long together. L is how long residuals
usually are: in pure epsilon by the answer to that, under N(LENGTH, LENGTH_SD^2) before, else c. Where it is
too long intervals lie beyond the truth, where too short they are too narrow. The weight W is
unknown too, and is integrated out, given at least two such vehicles, over a prior fitted to all noisy
weights: WEIGHTS points, zero among them, by EM from equal masses (Kiefer and Wolfowitz, 1956). A weight that
is put in as if it were known makes a posterior falsely sure. The common factor of spreads is decided by
places whose noisy weight no noise explains alone. Last comes N(0, TARGET_SD^2) of lambda for the mean of the
clipped speeds about the mean by weights. A place where nothing is known has the prior's interval.

**A guaranteed set.** Let y and k be these means over all rounds, W* the exact weight and mu* = k + (exact
sums of the clipped residuals, weighed likewise)/(G W*): the map that this mechanism would give without noise.
**Theorem.** {mu : |y/G - (mu - k) W| <= q_Y/G + |mu - k| q_W} holds mu* with probability >= the level, for
every place and store, if either noise is within its q with probability sqrt(level). *Proof.* y = G (mu* - k)
W* + N and W = W* + M, so y/G - (mu* - k) W = N/G - (mu* - k) M; N, a mean of independent draws with fixed
weights, and M are independent, whatever lift and maps made of earlier answers. QED. The mean of the clipped
speeds lies near mu*, by how much is as secret as the speeds. Where W <= q_W nothing is known, and it is 0..U.
It follows from the published answers (``target_interval``), and is no column.

**Variance.** ``AddRemoveDesign.variances``: a times what the map's level makes likely, and its posterior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.measurement.laws import GRAINS
from trafficdp.measurement.sets import Measure
from trafficdp.mechanisms.pooling import posterior
from trafficdp.mechanisms.pooling.add_remove_counts import CountAnswers, count_clips, measure_counts
from trafficdp.mechanisms.pooling.add_remove_design import LONG, AddRemoveDesign
from trafficdp.model import KnownSpeeds, number_pairs
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive import Contributions, VectorEntries

FIRST_GUESS = 1 / 5
"""Of the centre, in units of U, as all spreads and clip bounds below are."""
CENTRE_SD, LARGEST_CLIP_BOUND = 1 / 12, 1 / 3
LEAST_CLIP_BOUND = {LossKind.PURE: 1 / 18, LossKind.ZCDP: 1 / 10}
PLACE_SD = {LossKind.PURE: 1 / 10, LossKind.ZCDP: 1 / 12}
FAMILY, RECORD_SD = 0.3, 1 / 33.5
"""The share of H3 parents in the variance of places; of a vehicle's residual about its place, of weight 1."""
SPREAD, TARGET_SD, SCALE_SD = 0.37, 0.12, 0.3
"""Of lambda: of places about mu, of the mean of speeds about that by weights; of the factor's logarithm."""
USUAL = {LossKind.PURE: 1 / 16, LossKind.ZCDP: 1 / 4}
"""What a vehicle usually weighs in a place."""
OTHERS, ALIKE = {LossKind.PURE: 0.8, LossKind.ZCDP: 1 / 2}, 1 / 4
"""How long a vehicle's residuals are: of the usual length, and of a place's distance."""
LENGTH, LENGTH_SD = -0.5, 0.4
"""What is known of the answer about the length before: it is a third of the centre, give or take a half."""
NARROWER = 0.8
"""C of a round over that of the one before: the nearer the map, the shorter are residuals."""
LIFT, LIFTED_FROM = 0.4, 1 / 2
"""The power of 1/W+ in the lift; the noise sds of weight from which a place counts in its scale."""
SLOPE, FARTHEST = 0.2, 1.5
"""The power of 1/W+ in the centre of a place; how many times slower or faster than the city it can be."""
KNOWN_SD = 0.5
"""How wrong the move by known speeds may be, as a share of it. From 0.25 to 1 maps are as good."""
LEAST_FLEET, POINTS, CALIBRATED_LEVEL = 20.0, 24, 0.95
LEAST_LOG, AT_ONCE = -30.0, 1 << 15
"""Weights less likely than exp of this over the likeliest are left out; places integrated out together."""


@dataclass(frozen=True)
class FleetEstimate:
    """What the first answer says: ``vehicles`` n, ``centre`` c, first ``clip_bound`` C, ``power`` p."""

    vehicles: float
    centre: float
    clip_bound: float
    power: float

    def clip_of_round(self, round_number: int) -> float:
        """Return the length to which vehicles' residuals are clipped in round ``round_number`` (0, 1,
        ...), a speed.
        """
        return self.clip_bound * NARROWER**round_number


@dataclass(frozen=True)
class Answers:
    """All that was drawn, in grains, and the numbers fed back: with the design they are the whole map.

    ``fleet`` (2,), ``weight`` (H,), ``residual`` (J, H), ``spread`` (1,), or (0,) without a variance,
    ``length`` (1,), or (0,) in rho.
    ``maps`` (J, H) are those that were asked about: another machine's exp may differ in the last digit.
    """

    fleet: IntArray
    city: FleetEstimate
    weight: IntArray
    residual: IntArray
    maps: FloatArray
    spread: IntArray
    length: IntArray
    counts: CountAnswers | None = None


@dataclass(frozen=True)
class WeightEstimates:
    """What the noisy weights say of places before residuals are asked for, shape (H,) each.

    ``weight`` W; ``likely`` W+, above 0 everywhere; ``lift`` G; ``lifted`` V = G W+; ``centre`` mu is K_1,
    ``start`` what it would be if nothing were known before.
    """

    weight: FloatArray
    likely: FloatArray
    lift: FloatArray
    lifted: FloatArray
    start: FloatArray
    centre: FloatArray


@dataclass(frozen=True)
class RoundSummary:
    """What rounds about ``places`` say: ``y`` and ``k``, shape (H,), and ``sd`` s, in the unit of speeds."""

    places: WeightEstimates
    y: FloatArray
    k: FloatArray
    sd: float


@dataclass(frozen=True)
class AddRemoveMap:
    """Posterior of the means of H places, and a variance where one is asked for."""

    mean: posterior.Posterior
    variance: posterior.VariancePosterior | None


def estimate_fleet(design: AddRemoveDesign, fleet: IntArray) -> FleetEstimate:
    """Return the number of vehicles, the city's mean speed, and what follows from them, by the noisy
    ``fleet``.

    ``fleet`` (2,) are the noisy sums of the first step, in grains; there count as at least LEAST_FLEET
    vehicles.
    """
    upper, sd = design.upper, design.sd(0, 1.0)
    guess = FIRST_GUESS * upper
    fast, slow = (fleet / GRAINS).tolist()
    many = max(fast + slow, LEAST_FLEET)
    prior, noise = (CENTRE_SD * upper) ** 2, 2 * (guess * sd / many) ** 2
    lean = float(np.clip((fast - slow) / many, -1.0, 1.0))
    loss = sum(design.loss_shares[: design.variance_index]) / 1e12
    # how far the fleet carries: 1 at 200 vehicles and a unit of noise
    strength = max(1.0, many * (loss / 1000 if design.pure else np.sqrt(2 * loss) / 200))
    return FleetEstimate(
        vehicles=many,
        centre=guess * (1 + lean * prior / (prior + noise)),
        clip_bound=upper * min(LARGEST_CLIP_BOUND, LEAST_CLIP_BOUND[design.kind] * float(np.sqrt(strength))),
        power=min(1.0, 0.25 + 0.25 * float(np.log10(strength))),
    )


def estimate_weights(
    design: AddRemoveDesign, city: FleetEstimate, weight: IntArray, known: KnownSpeeds | None = None
) -> WeightEstimates:
    """Return estimates of the weights of H places, and of their speeds before any is measured.

    ``weight`` (H,) are the noisy sums of vehicles' weights, which have no unit, in grains. W = ``weight`` /
    GRAINS is kept beside W+ = E[x | x + N(0, sd^2) = W, x >= 0], the lift, and the speed expected by W+,
    ``city`` and the public ``known`` speeds (None: without these). No private value is read.
    """
    sd = design.sd(1, 1.0)
    z = np.maximum(weight / (GRAINS * sd), -6.0)
    likely = np.asarray(sd * z + sd * np.exp(-z * z / 2) / np.sqrt(2 * np.pi) / ndtr(z))
    some = likely[weight > LIFTED_FROM * sd * GRAINS]

    def falling(power: float, moment: int) -> FloatArray:
        """W+^-power times what makes its ``moment`` 1 on average over the weight of places with some."""
        if not len(some):
            return np.ones(len(likely))
        scale = some.sum() / (some ** (1 - moment * power)).sum()
        return np.asarray(scale ** (1 / moment) * likely**-power)

    lift, slower = falling(LIFT, 2), np.clip(falling(SLOPE, 1), 1 / FARTHEST, FARTHEST)
    many = posterior.SlowTraffic(np.log(likely), weight > LIFTED_FROM * sd * GRAINS, used=False)
    start = np.minimum(city.centre * slower, design.upper)
    centre = posterior.known_centre(known, start, likely, design.cell, design.upper, many)
    return WeightEstimates(weight / GRAINS, likely, lift, lift * likely, start, centre)


def summarise_rounds(
    design: AddRemoveDesign,
    city: FleetEstimate,
    places: WeightEstimates,
    residual: IntArray,
    maps: FloatArray,
) -> RoundSummary:
    """Return the precision-weighted mean of the first j rounds' noisy residuals and of the maps they were
    about.

    ``residual`` and ``maps`` have shape (j, H), for H places; no private value is read.
    """
    precision = np.array([design.sd(2 + each, city.clip_of_round(each)) for each in range(len(maps))]) ** -2
    share = precision / precision.sum()
    y, k = np.zeros(design.size), np.zeros(design.size)
    for each, (answer, around) in enumerate(zip(residual, maps, strict=True)):
        y += share[each] * (city.clip_of_round(each) / GRAINS) * answer
        k += share[each] * around
    return RoundSummary(places, y, k, float(precision.sum() ** -0.5))


def summarise_all_rounds(design: AddRemoveDesign, answers: Answers) -> RoundSummary:
    """Return the precision-weighted summary of all rounds of ``answers``, about the published maps."""
    places = replace(estimate_weights(design, answers.city, answers.weight), centre=answers.maps[0])
    return summarise_rounds(design, answers.city, places, answers.residual, answers.maps)


def next_map(design: AddRemoveDesign, summary: RoundSummary) -> FloatArray:
    """Return the posterior mean speed of each of H places after the rounds of ``summary``, shape (H,)."""
    lifted, centre = summary.places.lifted, learnt_centre(design, summary)
    said = summary.y + lifted * (summary.k - centre)
    family, known, own, spread = _families(design, lifted, summary.sd)
    alike = (np.bincount(family, lifted * said / spread) / known)[family]
    found = centre + alike + own * lifted * (said - lifted * alike) / spread
    return np.asarray(np.clip(found, 0.0, design.upper))


def learnt_centre(design: AddRemoveDesign, summary: RoundSummary) -> FloatArray:
    """Return each place's prior speed, (H,), with the move by known speeds shrunk as residuals suggest."""
    places = summary.places
    lifted, moves = places.lifted, places.centre - places.start
    if not moves.any():
        return places.centre
    family, known, _, spread = _families(design, lifted, summary.sd)

    def explained(said: FloatArray) -> float:
        """What ``said`` (H,) says of b, times its precision."""
        alike = (np.bincount(family, lifted * said / spread) / known)[family]
        return float((lifted * moves / spread) @ (said - lifted * alike))

    said = summary.y + lifted * (summary.k - places.centre)
    slope = min(explained(said) / (KNOWN_SD**-2 + explained(lifted * moves)), 0.0)
    return np.asarray(np.clip(places.centre + slope * moves, 0.0, design.upper))


def _families(
    design: AddRemoveDesign, lifted: FloatArray, sd: float
) -> tuple[IntArray, FloatArray, float, FloatArray]:
    """Parent of each place, precision of every parent's a, variance of e, and D of each place."""
    prior = (PLACE_SD[design.kind] * design.upper) ** 2
    own = (1 - FAMILY) * prior
    spread = np.asarray(own * lifted**2 + sd**2, dtype=np.float64)
    alike = np.bincount(design.parent_number, lifted**2 / spread).astype(np.float64)
    return design.parent_number, alike + 1 / (FAMILY * prior), own, spread


def add_remove_map(design: AddRemoveDesign, answers: Answers) -> AddRemoveMap:
    """Return the posterior of means, and of variances where asked for, of H places, from noisy answers
    alone.
    """
    summary = summarise_all_rounds(design, answers)
    mean = _posterior(design, answers, summary)
    return AddRemoveMap(mean, _variance(design, answers, mean) if design.variance else None)


def _posterior(design: AddRemoveDesign, answers: Answers, summary: RoundSummary) -> posterior.Posterior:
    """The posterior of every place, from the answers alone."""
    places, upper, sd = summary.places, design.upper, design.sd(1, 1.0)
    nothing, many = np.zeros(design.size), design.size
    weight = posterior.fit_weight_prior(places.weight, sd, design.pure)
    # no noise alone is as large
    most = np.log(2 * many) / np.sqrt(2) if design.pure else np.sqrt(2 * np.log(many))
    known = posterior.Places(
        centre=learnt_centre(design, summary),
        sigma=np.full(many, SPREAD),
        doubt=nothing,
        log_likelihood=_likelihood(design, answers, summary, weight),
        decides=places.weight > most * sd,
        scale_sd=SCALE_SD,
    )
    bins = posterior.Bins(
        place=np.arange(many),
        shift=nothing,
        sd=np.full(many, TARGET_SD),
        map=final_map(design, summary),
    )
    flat = posterior.OneNumber(answers.city.centre, known.sigma, bins.sd)
    found = posterior.posterior(known, bins, flat, upper)
    _, doubt = _quantiles(design, summary, CALIBRATED_LEVEL)
    # where noise alone may make that weight nobody may be
    return replace(found, informed=found.informed & (places.weight > doubt))


def _likelihood(
    design: AddRemoveDesign, answers: Answers, summary: RoundSummary, weights: tuple[FloatArray, FloatArray]
) -> Callable[[IntArray], FloatArray]:
    """How likely the answers about residuals are at every speed of the grid, for some places."""
    pure, norm, usual = design.pure, design.norm, USUAL[design.kind]
    there = weights[0] >= 2 * usual
    there[-1] = True
    points, log_mass = weights[0][there], np.log(weights[1][there])
    others = (OTHERS[design.kind] * usual_length(design, answers)) ** norm
    clips = [answers.city.clip_of_round(each) for each in range(design.rounds)]
    sds = [design.sd(2 + each, clip) for each, clip in enumerate(clips)]
    speeds, places = posterior.speed_of(posterior.LAMBDA, design.upper), summary.places

    def log_likelihood(own: IntArray) -> FloatArray:
        log_weight = (
            posterior.log_noise(places.weight[own, None] - points, design.sd(1, 1.0), pure) + log_mass
        )
        log_weight -= log_weight.max(axis=1, keepdims=True)
        lifted = places.lift[own, None] * points
        rounds = []
        for each, clip in enumerate(clips):
            away = speeds - answers.maps[each][own, None]
            length = (others + (ALIKE * np.abs(away)) ** norm) ** (1 / norm)
            away *= np.mean([np.minimum(1.0, clip / (length * t)) for t in (0.6, 1.0, 1.6)], axis=0)
            rounds.append((away, (answers.residual[each][own] * (clip / GRAINS))[:, None], sds[each]))
        linear = sum(away * (found / sd**2) for away, found, sd in rounds)
        square = sum(away**2 * (0.5 / sd**2) for away, _, sd in rounds)
        logs = []
        for number in np.flatnonzero((log_weight > LEAST_LOG).any(axis=0)):
            scale, log = lifted[:, number, None], log_weight[:, number, None]
            if pure:
                ((away, found, sd),) = rounds
                logs.append(log + posterior.log_noise(found - scale * away, sd, pure))
            else:
                # the square of every round, but for what no speed and no weight moves
                logs.append(log + scale * (linear - scale * square))
        most = np.max(logs, axis=0)
        return np.asarray(most + np.log(sum(np.exp(log - most) for log in logs)))

    return log_likelihood


def usual_length(design: AddRemoveDesign, answers: Answers) -> float:
    """Return the usual length of a vehicle's vector of residuals, as a speed, estimated from noisy
    answers.
    """
    if not design.pure:
        return answers.city.centre
    noise = design.sd(design.length_index, 1.0) / answers.city.vehicles
    said = float(answers.length[0]) / GRAINS / answers.city.vehicles
    found = LENGTH + (np.clip(said, -1.0, 1.0) - LENGTH) * LENGTH_SD**2 / (LENGTH_SD**2 + noise**2)
    return float(answers.city.centre / 2 * 2.0 ** (LONG * found))


def steps_follow_answers(design: AddRemoveDesign, answers: Answers, known: KnownSpeeds | None = None) -> bool:
    """Return whether the fleet estimate, clips and maps in ``answers`` follow from the noisy answers before
    them.

    They are recomputed and compared to a relative 10^-9. ``known`` are the public speeds that were used.
    """
    city, found = estimate_fleet(design, answers.fleet), answers.city
    same = np.allclose(astuple(city), astuple(found), rtol=1e-9)
    if answers.counts is not None:
        clip_bounds = count_clips(design, answers.counts.lengths, found.vehicles)
        same &= np.allclose(clip_bounds, answers.counts.clip_bounds, rtol=1e-9)
    places = estimate_weights(design, found, answers.weight, known)
    newest = places.centre
    places = replace(places, centre=answers.maps[0])
    for each, around in enumerate(answers.maps, 1):
        same &= np.allclose(newest, around, rtol=1e-9)
        summary = summarise_rounds(design, found, places, answers.residual[:each], answers.maps[:each])
        newest = next_map(design, summary)
    return bool(same)


def final_map(design: AddRemoveDesign, summary: RoundSummary) -> FloatArray:
    """Return the map of mean speeds of H places after all rounds, shape (H,), from the noisy answers."""
    return _refined(design, summary) if design.pure else next_map(design, summary)


def _refined(design: AddRemoveDesign, summary: RoundSummary) -> FloatArray:
    """Return the posterior mean of every place over its unknown weight, shape (H,), in pure epsilon.

    theta ~ N(mu + b m, tau^2); W on POINTS points about its answer, of density 1/(W + sd) times the noise's.
    Given W, y ~ N(G W (theta - k), s^2 + (U/33.5)^2 G^2 W) is Gaussian in theta: integrated in closed form.
    """
    upper, sd, places = design.upper, design.sd(1, 1.0), summary.places
    centre = learnt_centre(design, summary)
    prior = (PLACE_SD[design.kind] * upper) ** 2
    found = np.empty(design.size)
    for start in range(0, len(found), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        about, own, lift = (each[part, None] for each in (places.weight, summary.y, places.lift))
        low, high = np.maximum(about - 4 * sd, 0.0), np.maximum(about + 4 * sd, 2 * sd)
        weight = low + (np.arange(POINTS) + 0.5) / POINTS * (high - low)
        spread = summary.sd**2 + (RECORD_SD * upper * lift) ** 2 * weight
        lifted = lift * weight
        own = own + lifted * (summary.k - centre)[part, None]
        precision = lifted**2 / spread + 1 / prior
        pull = lifted * own / spread
        log = -np.sqrt(2) * np.abs(weight - about) / sd - np.log(weight + sd)
        log = log - own**2 / (2 * spread) - np.log(spread) / 2
        log = log + pull**2 / (2 * precision) - np.log(precision) / 2
        share = np.exp(log - log.max(axis=1, keepdims=True))
        found[part] = centre[part] + (share * pull / precision).sum(axis=1) / share.sum(axis=1)
    return np.clip(found, 0.0, upper)


def target_interval(
    design: AddRemoveDesign, summary: RoundSummary, level: float
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends, shape (H,) each, of the interval proved to hold the map without noise.

    It holds in each place with probability at least ``level``; ends are cut to 0..U. From noisy answers
    alone.
    """
    noise, doubt = _quantiles(design, summary, level)
    upper, k, weight, lift = design.upper, summary.k, summary.places.weight, summary.places.lift
    y, off = summary.y / lift, noise / lift
    near, far = np.maximum(weight - doubt, 1e-300), np.maximum(weight + doubt, 1e-300)
    with np.errstate(over="ignore"):
        low = k + (y - off) / np.where(y >= off, far, near)
        high = k + (y + off) / np.where(y >= -off, near, far)
    nothing = weight <= doubt
    low, high = np.clip(low, 0.0, upper), np.clip(high, 0.0, upper)
    return np.where(nothing, 0.0, low), np.where(nothing, upper, high)


def _quantiles(design: AddRemoveDesign, summary: RoundSummary, level: float) -> tuple[float, float]:
    """q_Y and q_W: what both noises stay within, each with probability sqrt(level)."""
    each = np.sqrt(level)
    q = -np.log1p(-each) / np.sqrt(2) if design.pure else float(ndtri((1 + each) / 2))
    return float(q * summary.sd), float(q * design.sd(1, 1.0))


def _variance(
    design: AddRemoveDesign, answers: Answers, mean: posterior.Posterior
) -> posterior.VariancePosterior:
    fleet = answers.city
    found = 1 + float(answers.spread[0]) / GRAINS / fleet.vehicles
    return design.variances(found, fleet.vehicles, fleet.centre, mean.value, mean.scale)


def measure_all(
    design: AddRemoveDesign,
    contributions: Contributions,
    measure: Measure,
    known: KnownSpeeds | None = None,
) -> Answers:
    """Take every noisy measurement of the map from the private ``contributions``, and return the answers.

    Later steps follow from earlier noisy answers. Records outside the design's places and slots are left out.
    """
    counts = contributions.counts
    user, place, records, speed = _by_place(design, contributions)
    fleet = _asked_fleet(design, user, speed, counts.users, measure)
    city = estimate_fleet(design, fleet)

    own_weight = records**city.power
    length = _by_user(user, own_weight**design.norm, counts.users) ** (1 / design.norm)
    own_weight = own_weight / length[user]
    many = design.size
    weight = measure.measure(design.step(1, many, 1.0), VectorEntries(user, place, own_weight))

    places = estimate_weights(design, city, weight, known)
    residual, maps = np.zeros((design.rounds, many), dtype=np.int64), np.zeros((design.rounds, many))
    for each in range(design.rounds):
        summary = summarise_rounds(design, city, places, residual[:each], maps[:each]) if each else None
        maps[each] = next_map(design, summary) if summary else places.centre
        off = VectorEntries(user, place, places.lift[place] * own_weight * (speed - maps[each][place]))
        residual[each] = measure.measure(design.step(2 + each, many, city.clip_of_round(each)), off)
    nothing = np.zeros(0, dtype=np.int64)
    answers = Answers(fleet, city, weight, residual, maps, nothing, nothing)
    if design.pure:
        answers = replace(answers, length=_asked_length(design, off, city.centre, measure))
    if design.variance:
        answers = replace(answers, spread=_asked_spread(design, answers, contributions, measure))
    if design.counts_percent:
        vectors = VectorEntries(user, place, np.ones(len(user))), VectorEntries(user, place, records)
        answers = replace(answers, counts=measure_counts(design, vectors, city.vehicles, measure))
    return answers


def _asked_length(design: AddRemoveDesign, off: VectorEntries, centre: float, measure: Measure) -> IntArray:
    """Ask how long the vectors ``off`` are, of which there is one a vehicle."""
    own, which = np.unique(off.user, return_inverse=True)
    size = np.bincount(which, np.abs(off.value), len(own))
    with np.errstate(divide="ignore"):
        long = np.clip(np.log2(size / (centre / 2)) / LONG, -1.0, 1.0)
    one = VectorEntries(own, np.zeros(len(own), dtype=np.int64), long)
    return measure.measure(design.step(design.length_index, 1, 1.0), one)


def _asked_spread(
    design: AddRemoveDesign, answers: Answers, contributions: Contributions, measure: Measure
) -> IntArray:
    counts, unit, city = contributions.counts, float(design.bound.step), answers.city
    at, there = _where(design, contributions)
    user, place, entry = number_pairs(counts.user_index[there], at[there], counts.users, design.size)
    sizes = (counts.count, contributions.total, contributions.total_of_squares)
    records, total, squares = (np.bincount(entry, each[there], len(user)) for each in sizes)
    own = np.unique(user)
    found = final_map(design, summarise_all_rounds(design, answers))
    about = (squares * unit - 2 * found[place] * total) * unit / records + found[place] ** 2
    relative = about / design.likely_variance(city.centre, found)[place]
    share = records / _by_user(user, records, counts.users)[user]
    far = np.clip(_by_user(user, share * relative, counts.users)[own] - 1, -1.0, 1.0)
    one = VectorEntries(own, np.zeros(len(own), dtype=np.int64), far)
    return measure.measure(design.step(design.variance_index, 1, 1.0), one)


def measure_fleet(design: AddRemoveDesign, contributions: Contributions, measure: Measure) -> IntArray:
    """Return two noisy sums over vehicles, in grains: of (1 + a)/2 and of (1 - a)/2, shape (2,).

    a in -1..1 is how much faster than U/5 the vehicle's mean speed is, relatively; both add up to the fleet.
    """
    user, _, _, speed = _by_place(design, contributions)
    return _asked_fleet(design, user, speed, contributions.counts.users, measure)


def _asked_fleet(
    design: AddRemoveDesign, user: IntArray, speed: FloatArray, users: int, measure: Measure
) -> IntArray:
    """Ask about means over a vehicle's places: over records they would be those of where it waits."""
    own, guess = np.unique(user), FIRST_GUESS * design.upper
    mean = _by_user(user, speed, users)[own] / np.bincount(user, minlength=users)[own]
    lean = np.clip((mean - guess) / guess, -1.0, 1.0)
    shares = np.concatenate([(1 + lean) / 2, (1 - lean) / 2])
    both = VectorEntries(np.tile(own, 2), np.repeat([0, 1], len(own)), shares)
    return measure.measure(design.step(0, 2, 1.0), both)


def _by_place(
    design: AddRemoveDesign, contributions: Contributions
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Vehicle, place, records and mean speed of every place of a vehicle that is asked about."""
    counts, unit = contributions.counts, float(design.bound.step)
    at, there = _where(design, contributions)
    user, place, entry = number_pairs(counts.user_index[there], at[there], counts.users, design.size)
    records, total = (
        np.bincount(entry, each[there], len(user)).astype(np.float64)
        for each in (counts.count, contributions.total)
    )
    return user, place, records, total * unit / records


def _where(design: AddRemoveDesign, contributions: Contributions) -> tuple[IntArray, BoolArray]:
    """The place of every pair, shape (P,), and whether it is one that is asked about."""
    counts = contributions.counts
    at, there = design.place_numbers(counts.cell, counts.slot)
    return at[counts.bin_index], there[counts.bin_index]


def _by_user(user: IntArray, values: npt.NDArray[Any], users: int) -> FloatArray:
    return np.bincount(user, values, users).astype(np.float64)
