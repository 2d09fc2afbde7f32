"""Does a release stand? Recomputed from the vault's counts and the published files, trusting neither."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, gammainc, gammaincc, gammainccinv, gammaincinv

from trafficdp._durable import read_regular
from trafficdp.arrays import FloatArray, IntArray
from trafficdp.engine.duckdb_reduce import reduce_fixes
from trafficdp.errors import TrafficdpError, VerificationError
from trafficdp.export.files.manifest import validate_manifest
from trafficdp.export.write import MANIFEST, MEASUREMENTS, MECHANISM
from trafficdp.measurement.laws import Block, Gaussian, Laplace, Law
from trafficdp.measurement.sets import Claim, Ranks, Scores, Step
from trafficdp.mechanisms.registry import calibrated_from_facts
from trafficdp.model import KnowledgeKind, KnownSpeeds, as_json, from_json
from trafficdp.noise.choice import block_rank, choice_rank, gaussian_rank, laplace_rank, probabilities
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.budget import KIND, Promise, changes_in
from trafficdp.privacy.disclosure import Guarantee
from trafficdp.privacy.estimate import NOISE_COLUMNS
from trafficdp.privacy.ledger import LedgerRow, accounts_hash
from trafficdp.privacy.loss import LossKind, decimal_text
from trafficdp.privacy.release import LedgerReference, Release, encode, same_arrays
from trafficdp.release import intake, knowledge, recomputation
from trafficdp.release.curator import Curator, execute_release
from trafficdp.release.publication import folder_of, ledger_reference
from trafficdp.sensitive import Contributions, MeasureInput
from trafficdp.store import vault_ledger, vault_releases
from trafficdp.store.released import differing_release
from trafficdp.store.vault_fixes import DataVersion, history_of, stated_history

# What was measured, again from what the curator kept; and what lies between: the noise.
#
# ``Replayed`` gives the same answers to the same mechanism, computes the exact sums anew, and so knows every
# draw and what every choice was among: whether they are of the laws that were charged is what ``plausible``
# says. It may exist only beside the vault: exact sums are not paid for.


@dataclass(frozen=True, repr=False)
class Chosen:
    """Choices that a mechanism made in one selection, one for each coordinate, with what they were among.

    ``cost``, ``weight`` and ``start`` are the candidates and ``scale`` the noise scales, as in
    ``noise.choice``. ``cell`` is the chosen position in ``cost``; of the weight there, the candidate drawn
    takes the part from ``low`` to ``low`` + ``span`` (shares, 0 to 1).
    """

    cost: IntArray
    weight: IntArray
    start: IntArray
    scale: FloatArray
    cell: IntArray
    low: FloatArray
    span: FloatArray


class Replayed:
    """A ``Measure`` that draws nothing: it gives the answers ``kept`` by ``Recorded.to_bytes`` again.

    It collects what was drawn: ``noise`` (law and noise of every step), ``chosen`` (every selection) and
    ``uniform`` (upper limits and numbers). ``left`` are the answers not asked for yet, the next one last.
    Raises VerificationError where the mechanism asks for what was not kept.
    """

    def __init__(self, kept: bytes) -> None:
        with np.load(io.BytesIO(kept), allow_pickle=False) as file:
            self.left = [file[name] for name in reversed(file.files)]
        self.noise: list[tuple[Law, IntArray]] = []
        self.chosen: list[Chosen] = []
        self.uniform: list[tuple[IntArray, IntArray]] = []

    def measure(self, step: Step, values: MeasureInput) -> IntArray:
        """Return the kept noisy sums of ``step``, shape (C,), and note the noise: answer minus exact sums."""
        answer = self._next(len(step.shift))
        self.noise.append((step.law, answer - step.exact(values)))
        return answer

    def select(self, ranks: Ranks, values: npt.NDArray[Any]) -> IntArray:
        """Return the kept quantiles, shape (C,), and note what they were chosen among.

        Raises VerificationError for one that is out of range.
        """
        answer = self._next(len(ranks.high))
        if bool(np.any((answer < 0) | (answer > ranks.high))):
            raise VerificationError("something was selected that no vehicle can have")
        begin, cost, weight, start = ranks.cells(values)
        # of cells that begin with the same number all but the last are empty
        upto = np.add.reduceat(begin <= np.repeat(answer, np.diff(start)), start[:-1], dtype=np.int64)
        cell = start[:-1] + upto - 1
        low, span = (answer - begin[cell]) / weight[cell], 1.0 / weight[cell]
        self.chosen.append(Chosen(cost, weight, start, ranks.scale, cell, low, span))
        return answer

    def select_claimed(self, scores: Scores, cost: IntArray, weight: IntArray, start: IntArray) -> IntArray:
        """Return the kept positions, shape (C,), and note what they were chosen among.

        Raises VerificationError for one that is out of range.
        """
        answer = self._next(len(scores.scale))
        if bool(np.any((answer < start[:-1]) | (answer >= start[1:]))):
            raise VerificationError("something was chosen that there was not")
        low, span = np.zeros(len(answer)), np.ones(len(answer))
        self.chosen.append(Chosen(cost, weight, start, scores.scale, answer, low, span))
        return answer

    def charge_unverified(self, noise: Claim) -> None:
        """Do nothing: noise of this kind is made of ``uniform_below``, whose numbers were kept."""

    def uniform_below(self, count: IntArray) -> IntArray:
        """Return the kept uniform numbers in the shape of ``count``, and note them with ``count``."""
        answer = self._next(count.size)
        self.uniform.append((np.ravel(count), np.ravel(answer)))
        return answer.reshape(count.shape)

    def _next(self, size: int) -> npt.NDArray[Any]:
        if not self.left or self.left[-1].size != size:
            raise VerificationError("something else was measured than this mechanism measures")
        return np.asarray(self.left.pop())


# Is what was drawn of the law that was priced? All of a release together, wrong by chance once in 10^9.
#
# A draw's rank in its law is uniform, and independent of all others (``noise.choice``); so for n draws the
# sums of -log(rank) and of -log(1 - rank) each have the law Gamma(n, 1), and the signs of draws that are not
# 0 are fair coins. Choices, ranked by their costs, and uniform numbers have such sums too. **Theorem.** If
# every draw, choice and uniform number is of its law, ``plausible`` is false with probability at most
# FALSE_ALARM: fourteen equal tails. (Apart from the 10^-5 of ``noise.choice``: the tails leave room for it.)
# One draw is a coordinate of Laplace or Gaussian noise, or a block of block noise; one choice is that of a
# coordinate, given all that was drawn before.
#
# **Power.** Laplace noise of f times its scale puts the first sum near f times its law:
# ``detection_probability(n, f)`` is the probability that this alone is found, so a lower bound. Halved noise
# is found with probability 0.99 from 180 draws on, noise of 0.9 times its scale from 7,083. Gaussian and
# block noise show it in fewer draws.
# The cost of a choice among numbers that lie close, over its scale, is of nearly the exponential law, like
# Laplace noise: the same numbers hold. Where few numbers can be chosen, one of them is chosen at any scale,
# and nothing is found; which it is depends on the values, and is not told.
#
# Noise without an exact sampler follows from uniform numbers, and so does which of many equal candidates is
# taken. ``uniform_detection_probability`` is the probability that uniform numbers on one half only are found:
# 0.99 from 196 on. That floats round what is made of them is not tested.


FALSE_ALARM = 7e-10
_TAIL = FALSE_ALARM / 14
Uniform = tuple[IntArray, IntArray]
"""Below what each number was drawn, and the numbers."""


def plausible(
    noise: Iterable[tuple[Law, IntArray]], chosen: Iterable[Chosen] = (), uniform: Iterable[Uniform] = ()
) -> bool:
    """Return False where draws, choices or uniform numbers are very unlikely under their stated laws.

    ``noise`` holds the law and the noise of every step. If everything was drawn from its law, False comes
    with probability at most FALSE_ALARM. True is no proof: see ``detection_probability``.
    """
    # any uniform numbers that do not depend on the draws; the same each time, and so is the verdict
    random = SimulatedNoise(0)
    ranks, above, many = [], 0, 0
    for law, z in noise:
        drawn, draws = drawn_coordinates(law)
        if bool(np.any(z[~drawn])):
            return False
        own, within = z[drawn], _uniform(random, draws)
        if isinstance(law, Block):
            ranks.append(block_rank(own, law.half_width[drawn], law.block[drawn], law.scale, within))
        elif isinstance(law, Gaussian):
            ranks.append(gaussian_rank(own, law.sd[drawn], within))
        else:
            ranks.append(laplace_rank(own, law.scale[drawn], within))
        above += int(np.count_nonzero(own > 0))
        many += int(np.count_nonzero(own))
    choices = []
    for each in chosen:
        within = each.low + each.span * _uniform(random, len(each.cell))
        among = (each.cost, each.weight, each.start, each.scale)
        if len(each.cell) and bool(np.any(probabilities(*among)[each.cell] == 0)):
            return False
        outside, inside = choice_rank(among, each.cell, within)
        choices.append((outside[each.scale > 0], inside[each.scale > 0]))
    whole = []
    for below, number in uniform:
        if bool(np.any((number < 0) | (number >= below))):
            return False
        within = _uniform(random, len(number))
        # 53 bits of either side are exact
        whole.append((np.log((number + within) / below), np.log((below - number - within) / below)))
    tails = [float(bdtr(side, many, 0.5)) for side in (above, many - above) if many]
    for logs in filter(None, (ranks, choices, whole)):
        for side in zip(*logs, strict=True):
            sums = -np.concatenate(side)
            # how probable a sum as small is, and one as large
            tails += [float(tail(len(sums), sums.sum())) for tail in (gammainc, gammaincc) if len(sums)]
    return min(tails, default=1.0) >= _TAIL


def _uniform(random: SimulatedNoise, many: int) -> FloatArray:
    return (random.uniform_below(np.full(many, 2**53)).astype(np.float64) + 0.5) / 2.0**53


def detection_probability(draws: int, factor: float) -> float:
    """Return a lower bound on the probability that ``plausible`` rejects Laplace noise of a wrong scale.

    The noise has ``factor`` times its stated scale, and there are ``draws`` of it.
    """
    if not draws:
        return 0.0
    few, much = gammaincinv(draws, _TAIL), gammainccinv(draws, _TAIL)
    return float(gammainc(draws, few / factor) if factor < 1 else gammaincc(draws, much / factor))


def uniform_detection_probability(numbers: int) -> float:
    """Return a lower bound on the probability that ``plausible`` rejects ``numbers`` wrong uniform numbers.

    They are taken as uniform on only one half of their range.
    """
    if not numbers:
        return 0.0
    return float(gammaincc(numbers, max(gammainccinv(numbers, _TAIL) - numbers * np.log(2), 0.0)))


def probability_text(probability: float) -> str:
    """Return ``probability`` as text, rounded down to two decimals."""
    return f"{math.floor(100 * probability) / 100:.2f}"


def drawn_coordinates(law: Law) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], int]:
    """Return which coordinates of ``law`` carry noise, shape (C,), and the number of independent draws.

    Block noise is one draw a block; any other is one a coordinate that carries noise.
    """
    if isinstance(law, Block):
        return law.block >= 0, law.blocks
    drawn = (law.scale if isinstance(law, Laplace) else law.sd) > 0
    return drawn, int(np.count_nonzero(drawn))


# What both verifications look at first: the ledger, and the files of what was published.


class Examined:
    """What ``release_id`` published under the charge number ``sequence`` of the ledger."""

    def __init__(self, curator: Curator, release_id: str, sequence: int) -> None:
        self._curator = curator
        # absolute: pandas takes a relative name with a colon for an address
        self._folder = folder_of(curator.store, release_id).absolute()
        self._ledger = vault_ledger.ledger_rows(curator.vault)
        self._sequence = sequence
        self._promises = [row for row in self._ledger if row.facts["kind"] == KIND]
        changes = [each.in_words for each in changes_in(self._promises)]
        # every change of the store's promise so far, for the name of the check
        self._changed = f" (changed {'; changed '.join(changes)})" if changes else ""

    @property
    def _charge(self) -> LedgerRow:
        """The ledger's entry; a ledger too short is a finding like any other."""
        return self._ledger[self._sequence - 1]

    def _budget_stated(self) -> str | None:
        """Compare ceiling and changes that the manifest states with those in force at the charge."""
        before = [row for row in self._promises if row.sequence < self._sequence]
        if not before:
            return "the ledger promises nothing before the charge"
        stated = self._manifest["accounting"]
        ceiling = decimal_text(Promise.from_facts(before[-1].facts).policy.total.pico)
        if stated["budget_per_vehicle"] != ceiling:
            return f"{stated['budget_per_vehicle']} is stated, {ceiling} was promised"
        told = [as_json(each) for each in changes_in(before)]
        return None if stated.get("budget_changes", []) == told else "other changes of the budget"

    @cached_property
    def _manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(read_regular(self._folder / MANIFEST).decode("utf-8"))
        return manifest


# Does a release stand? Recomputed from the vault's counts and the published files, trusting neither.
#
# The loss of every vehicle is computed anew from the records and the calibrated mechanism *in the published
# files* (mechanism.parquet and the manifest's ``noise``), never from what the manifest claims it to be.


def verify(curator: Curator, release_id: str) -> list[recomputation.Check]:
    """Return every check of a release. Raises UsageError when there is no such published release."""
    stored = vault_releases.release_named(curator.vault, release_id)
    if stored.withdrawn or not stored.published:
        raise VerificationError(
            "only a published release can be verified",
            got=f"{release_id}, {'withdrawn' if stored.withdrawn else 'unfinished'}",
        )
    return recomputation.run_checks(_ExaminedRelease(curator, stored).checks())


class _ExaminedRelease(Examined):
    """One release under examination."""

    def __init__(self, curator: Curator, stored: vault_releases.StoredRelease) -> None:
        super().__init__(curator, stored.release_id, stored.sequence)
        self._stored = stored
        self._specification = curator.specification_of(stored.release_id)
        # nothing about a vehicle is public, so that anyone can check the most of it
        self._declared = curator.relation.hides_presence

    def checks(self) -> recomputation.NamedChecks:
        """Yield (what is checked, function that checks it), in an order that a reader can follow."""
        whole_ledger = partial(self._curator.check_not_behind, whole=True)
        yield "the ledger has every entry that its head and the manifests name", whole_ledger
        yield "the ledger's charge is the specification that was executed", self._specification_is_charged
        yield "the vehicles' accounts are those of the charge", self._accounts
        yield "the data is the version that was charged", self._data_version
        yield "the manifest is complete and consistent", self._manifest_valid
        yield "the manifest names its entry of the ledger", self._manifest_in_ledger
        yield f"the budget is the one that the ledger promised{self._changed}", self._budget_stated
        yield "every file is the one that was published", self._files
        yield recomputation.PORTALS, partial(recomputation.differing_portal_files, self._folder)
        yield "the published scales cost no vehicle more than it was charged", self._losses
        yield "the manifest's epsilon is the largest recomputed loss", self._epsilon
        yield "released.duckdb holds the same release", self._released
        if "known" in self._specification.calibrated:
            yield "speeds that were known before are those of the sources that are named", self._known
        yield "every number follows from what was measured", self._follows
        yield f"the noise has the distribution that was charged ({self._power()})", self._law
        if self._declared:
            yield "anyone can recompute its numbers", self._public

    def _specification_is_charged(self) -> str | None:
        allocation = vault_releases.part_of(self._curator.vault, self._stored.release_id, "allocation")
        digest = hashlib.sha256(allocation).hexdigest()
        facts = self._charge.facts
        if facts.get("specification_sha256") != digest or facts.get("release") != self._stored.release_id:
            return "another specification than the one in the ledger"
        return None

    def _accounts(self) -> str | None:
        accounts = accounts_hash(*vault_ledger.charges_of(self._curator.vault, self._stored.sequence))
        return None if self._charge.facts.get("accounts_sha256") == accounts else "other accounts"

    def _data_version(self) -> str | None:
        pinned, (name, history) = self._specification, self._data_now
        if name != pinned.data_version:
            self._require_nothing_forgotten()
            return "other data than was charged"
        if history != stated_history(self._curator.vault, pinned.ingest_id):
            return "other files, or another number of records, than were ingested"
        return None

    @cached_property
    def _data_now(self) -> tuple[str, str]:
        """Name and history that the vault's data has now, up to the last file that was charged for."""
        return history_of(self._curator.vault, self._specification.ingest_id)

    def _manifest_valid(self) -> str | None:
        validate_manifest(self._manifest)
        return None

    def _manifest_in_ledger(self) -> str | None:
        stated = ledger_reference(self._manifest)
        right = (self._charge.sequence, self._charge.head_hash)
        return None if stated == right else "another entry of the ledger"

    def _files(self) -> str | None:
        listed = {each["name"]: each["sha256"] for each in self._manifest["files"]}
        for facts in (row.facts for row in self._ledger):
            if facts.get("kind") == "publication" and facts.get("release") == self._stored.release_id:
                files = facts.get("files")
                if isinstance(files, dict):
                    return recomputation.differing_files(self._folder, files, listed)
        raise VerificationError("the ledger has no publication of this release")

    def _recorded(self) -> Contributions:
        """Return the statistics of every vehicle, from the records, not from the cache."""
        asked = self._specification.grid, self._specification.request.bound, self._specification.ingest_id
        whole: Contributions = reduce_fixes(self._curator.vault.connection, *asked)
        return whole

    @cached_property
    def _contributions(self) -> Contributions:
        """What may be planned with."""
        if not self._declared:
            return self._recorded()
        pinned = self._specification
        version = DataVersion(pinned.ingest_id, pinned.data_version)
        return self._curator.contributions(pinned.grid, pinned.request.bound, version)

    @cached_property
    def _recomputed_losses(self) -> dict[int, int]:
        """Every vehicle's loss by the vault's counts and the published calibrated mechanism."""
        import pandas as pd

        if not self._declared:
            self._require_nothing_forgotten()
        contributions = self._contributions
        counts = contributions.counts
        table = MEASUREMENTS if self._declared else MECHANISM
        published = pd.read_parquet(io.BytesIO(read_regular(self._folder / table)))
        if not recomputation.rows_match_counts(published, self._specification.grid, counts):
            raise VerificationError("the published bins are not those of the data")
        columns = recomputation.noise_columns(published)
        # bins that carry noise or a constant, by any statistic: where a float of it is no null
        numbered = np.any(
            [
                ~np.isnan(values)
                for own in columns.values()
                for name, values in own.items()
                if NOISE_COLUMNS[name].withheld is None
            ],
            axis=0,
        )
        chosen = counts.select(np.repeat(numbered, counts.bins // max(len(numbered), 1)))
        calibrated = calibrated_from_facts(
            self._manifest["noise"],
            self._specification.public_facts(chosen),
            {
                statistic: {name: values[numbered] for name, values in own.items()}
                for statistic, own in columns.items()
            },
        )
        losses = calibrated.event().loss_per_user
        return dict(zip(contributions.vehicle.tolist(), losses.tolist(), strict=True))

    def _losses(self) -> str | None:
        recomputed = self._recomputed_losses
        vehicle, charged = vault_ledger.charges_of(self._curator.vault, self._stored.sequence)
        account = dict(zip(vehicle.tolist(), charged.tolist(), strict=True))
        undercharged = sum(loss > account.get(name, 0) for name, loss in recomputed.items())
        return f"{undercharged} vehicles lose more than they were charged" if undercharged else None

    def _require_nothing_forgotten(self) -> None:
        """Raise VerificationError where vehicles of the data were forgotten since the charge."""
        if self._data_now[0] != self._specification.data_version:
            forgotten = intake.forgotten_since(self._ledger, self._charge.sequence)
            if forgotten is not None:
                raise VerificationError(forgotten)

    def _epsilon(self) -> str | None:
        largest = max(self._recomputed_losses.values(), default=0)
        guarantee = from_json(Guarantee, self._manifest["guarantee"])
        claimed, kind = guarantee.loss, LossKind.PURE if guarantee.rho is None else LossKind.ZCDP
        charged = self._charge.facts.get(kind.pico_key)
        if charged is None:
            return "a guarantee of another kind than the charge"
        if claimed != decimal_text(largest) or charged != largest:
            return f"a claim of {claimed} where {decimal_text(largest)} is lost"
        return None

    @cached_property
    def _replayed(self) -> tuple[Replayed, Release]:
        """The release made again from the records and the answers that were kept: every draw is known."""
        self._require_nothing_forgotten()
        values = self._curator.sensitive_inputs(self._specification, self._contributions)
        values = replace(values, recorded=self._recorded)
        again = Replayed(vault_releases.part_of(self._curator.vault, self._stored.release_id, "measured"))
        ledger = LedgerReference(self._charge.sequence, self._charge.head_hash)
        return again, execute_release(self._specification, values, again, ledger)

    def _power(self) -> str:
        """What the test of the law can find in so few, or so many, numbers."""
        try:
            again = self._replayed[0]
        except (TrafficdpError, *recomputation.UNREADABLE):
            # the check itself says so
            again = None
        draws = sum(drawn_coordinates(law)[1] for law, _ in again.noise) if again else 0
        # scales are public
        choices = sum(int((each.scale > 0).sum()) for each in again.chosen) if again else 0
        numbers = sum(len(number) for _, number in again.uniform) if again else 0
        found = [
            detection_probability(draws, 0.5),
            detection_probability(choices, 0.5),
            uniform_detection_probability(numbers),
        ]
        said = [probability_text(each) for each in found]
        close = f", of choices among many close numbers with {said[1]}" if choices else ""
        idle = f", of uniform numbers with {said[2]}" if numbers else ""
        return f"half as much is noticed with probability {said[0]}{close}{idle}"

    def _follows(self) -> str | None:
        again, release = self._replayed
        facts, bins = encode(release)
        committed = vault_releases.values_of(self._curator.vault, self._stored.release_id)
        if committed is None or again.left or json.dumps(facts, allow_nan=False) != committed[0]:
            return "other numbers than were measured"
        return None if same_arrays(bins, committed[1]) else "other numbers than were measured"

    def _known(self) -> str | None:
        pinned = self._specification
        known = from_json(KnownSpeeds, pinned.calibrated["known"])
        if self._manifest["noise"]["known"] != as_json(known.sources):
            return "other sources in the manifest"
        for source, speed in zip(known.sources, known.speed, strict=True):
            # a file is not the store's: its speeds are those that were charged, and its hash names it
            if source.kind is not KnowledgeKind.RELEASE:
                continue
            if not vault_releases.release_named(self._curator.vault, source.name).withdrawn:
                found = knowledge.speeds_of(self._curator, self._curator.load(source.name))
                if not np.array_equal(found.speeds_of_bins(pinned.cell, pinned.slot), speed, equal_nan=True):
                    return f"other speeds than release {source.name} has"
        return None

    def _law(self) -> str | None:
        again, _ = self._replayed
        # no more than this is said: the draws tell the exact sums
        right = plausible(again.noise, again.chosen, again.uniform)
        return None if right else "other noise, other choices, or other sums"

    def _released(self) -> str | None:
        release = self._curator.load(self._stored.release_id)
        differing = differing_release(self._curator.store, [release])
        return None if differing is None else "other rows than were released"

    def _public(self) -> str | None:
        wrong = [
            f"{each.name}: {each.found}"
            for each in recomputation.verify_public(self._folder)
            if not each.passed
        ]
        return "; ".join(wrong) or None
