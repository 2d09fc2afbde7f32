"""Does a stream stand? Recomputed from the vault's counts and the published files, trusting neither.

What every vehicle lost is computed anew: its records in the journal of counts, the nodes that hold them by
their positions, and the noise scales *in the published file*.
"""

from __future__ import annotations

import hashlib
import io
import json
from fractions import Fraction
from functools import cached_property, partial

import numpy as np

from trafficdp._durable import read_regular
from trafficdp.arrays import IntArray
from trafficdp.bounding.arrays import rank_in_sorted
from trafficdp.errors import TrafficdpError, VerificationError
from trafficdp.export.files.manifest import validate_manifest
from trafficdp.export.write import LIVE, MANIFEST, MECHANISM
from trafficdp.measurement.laws import Laplace
from trafficdp.measurement.nodes import signed_nodes_touched
from trafficdp.model import Statistic
from trafficdp.privacy import ledger, release
from trafficdp.privacy.loss import PICO, decimal_text
from trafficdp.release import intake, recomputation, specification, stream_release, verification
from trafficdp.release.curator import Curator
from trafficdp.release.publication import to_released_publication
from trafficdp.store import vault_ledger, vault_releases
from trafficdp.store.released import publications_match
from trafficdp.stream.service import Stream


def verify_stream(curator: Curator, release_id: str) -> list[recomputation.Check]:
    """Return every check of a stream.

    Raises UsageError when there is none of that name, VerificationError before its first publication.
    """
    stored = vault_releases.stream_named(curator.vault, release_id)
    return recomputation.run_checks(_ExaminedStream(curator, stored).checks())


class _ExaminedStream(verification.Examined):
    """One stream under examination."""

    def __init__(self, curator: Curator, stored: vault_releases.StoredStream) -> None:
        super().__init__(curator, stored.release_id, stored.sequence)
        self._stored = stored
        self._specification = specification.Specification.from_json(stored.facts)
        self._allowance = stream_release.running_sums_of(self._specification).allowance
        self._publications = vault_releases.publications(curator.vault, stored.release_id)
        if not self._publications:
            raise VerificationError("nothing was published of this stream yet", got=stored.release_id)
        self._newest = self._publications[-1]
        counts = vault_releases.counts_of(curator.vault, stored.release_id, self._newest.step)
        self._counts = {name: counts.column(name).to_numpy().astype(np.int64) for name in counts.column_names}

    def checks(self) -> recomputation.NamedChecks:
        """Yield (what is checked, function that checks it), in an order that a reader can follow."""
        whole_ledger = partial(self._curator.check_not_behind, whole=True)
        yield "the ledger has every entry that its head and the manifests name", whole_ledger
        yield "the ledger's charge is the specification that was executed", self._specification_is_charged
        yield "every vehicle that was counted is charged the stream's epsilon", self._accounts
        yield "every publication is the one in the ledger", self._in_ledger
        yield (
            "the counts are those that the publications were made from",
            lambda: self._forgotten() or self._digests(),
        )
        yield (
            "positions number the elements of every bin without a gap",
            lambda: self._forgotten() or self._positions(),
        )
        yield "the manifest is complete, consistent and of the newest publication", self._manifest_valid
        yield f"the budget is the one that the ledger promised{self._changed}", self._budget_stated
        yield "every file says what was committed", self._files
        yield recomputation.PORTALS, partial(recomputation.differing_portal_files, self._folder)
        yield "the published scales cost no vehicle more than epsilon", self._losses
        yield "the state's accounts are not below the recomputed ones", self._state_accounts
        yield f"the nodes' noise has the distribution that was charged ({self._power()})", self._law
        yield "released.duckdb holds the same publications", self._released

    def _specification_is_charged(self) -> str | None:
        facts = self._charge.facts
        digest = hashlib.sha256(self._stored.facts.encode()).hexdigest()
        same = (
            facts.get("kind") == "stream"
            and facts.get("specification_sha256") == digest
            and facts.get("release") == self._stored.release_id
            and facts.get("epsilon_pico") == self._allowance.epsilon.pico
        )
        return None if same else "another specification than the one in the ledger"

    def _accounts(self) -> str | None:
        vehicle, loss = vault_ledger.charges_of(self._curator.vault, self._stored.sequence)
        if not bool(np.all(loss == self._allowance.epsilon.pico)):
            return "other accounts"
        uncharged = np.setdiff1d(self._counts["vehicle_id"], vehicle)
        return f"{len(uncharged)} vehicles without a charge" if len(uncharged) else None

    def _pinned_publications(self) -> dict[int, ledger.LedgerRow]:
        """The entries of the stream's publications, by number."""
        name = self._stored.release_id
        return {
            int(str(row.facts["number"])): row
            for row in self._ledger
            if row.facts["kind"] == "stream_publication" and row.facts["release"] == name
        }

    def _in_ledger(self) -> str | None:
        pinned = {
            number: (row.sequence, str(row.facts["values_sha256"]))
            for number, row in self._pinned_publications().items()
        }
        found = {each.number: (each.sequence, each.values_sha256) for each in self._publications}
        wrong = sorted(
            number for number in pinned.keys() | found.keys() if pinned.get(number) != found.get(number)
        )
        return f"{len(wrong)} publications differ, the first is number {wrong[0]}" if wrong else None

    def _forgotten(self) -> str | None:
        """Why counts and state tell nothing any more, where vehicles were to leave them since."""
        return intake.forgotten_since(self._ledger, self._charge.sequence)

    def _digests(self) -> str | None:
        pinned = self._pinned_publications()
        digest = ledger.GENESIS
        steps = self._counts["step"]
        for publication in self._publications:
            here = slice(*np.searchsorted(steps, [publication.step, publication.step + 1]))
            journal = {name: values[here] for name, values in self._counts.items()}
            digest = stream_release.next_digest(
                digest, publication.step, {**journal, "vehicle": journal["vehicle_id"]}
            )
            entry = pinned.get(publication.number)
            if entry is None or digest != entry.facts["counts_sha256"]:
                return f"other counts at publication {publication.number}"
        counted = {each.step for each in self._publications}
        return (
            None if set(np.unique(steps).tolist()) == counted else "counts of a step that was not published"
        )

    def _positions(self) -> str | None:
        places = np.unique(
            np.stack([self._counts[name] for name in ("cell", "slot", "step", "position")], axis=1), axis=0
        )
        _, bin_of = np.unique(places[:, :2], axis=0, return_inverse=True)
        right = rank_in_sorted(bin_of) + 1
        return None if np.array_equal(places[:, 3], right) else "an element counted twice or left out"

    def _manifest_valid(self) -> str | None:
        manifest = validate_manifest(self._manifest)
        stream = manifest.noise.stream
        if stream is None or stream.publication != self._newest.number:
            return "another publication than the newest"
        if manifest.guarantee.epsilon != decimal_text(self._allowance.epsilon.pico):
            return "another epsilon than was charged"
        return None

    def _release(self) -> release.Release:
        return to_released_publication(self._newest).release

    def _files(self) -> str | None:
        listed = {each["name"]: each["sha256"] for each in self._manifest["files"]}
        wrong = recomputation.differing_files(self._folder, listed, unlisted=MANIFEST)
        if wrong:
            return wrong
        document = json.loads(read_regular(self._folder / LIVE).decode("utf-8"))
        said = document["trafficdp"].get("stream", {}).get("publication")
        return None if said == self._newest.number else f"{LIVE} is of another publication"

    def _published_scale(self) -> tuple[int, int | None]:
        """The published scales: of sums of x, and of x (S - x) where there are any."""
        import pandas as pd

        table = pd.read_parquet(io.BytesIO(read_regular(self._folder / MECHANISM)))
        scales = []
        for statistic in (Statistic.MEAN, Statistic.VARIANCE):
            column = f"{statistic.stem}_lattice_scale"
            found = np.unique(table[column].dropna().to_numpy()) if column in table else np.zeros(0)
            if len(found) > 1 or (len(found) and not float(found[0]).is_integer()):
                raise VerificationError("the published scales are not one whole number")
            scales.append(int(found[0]) if len(found) else None)
        mean = self._allowance.mean_scale if scales[0] is None else scales[0]
        return mean, scales[1]

    def _touched(self) -> tuple[IntArray, IntArray]:
        arity, heights = self._allowance.arity, self._allowance.heights
        nodes = self._counts["records"] * signed_nodes_touched(self._counts["position"], arity, heights)
        vehicle, which = np.unique(self._counts["vehicle_id"], return_inverse=True)
        touched = np.zeros(len(vehicle), dtype=np.int64)
        np.add.at(touched, which, nodes)
        return vehicle, touched

    def _losses(self) -> str | None:
        mean, second = self._published_scale()
        steps = self._specification.request.bound.upper_steps
        # at S times the first scale or more, the second sum is free; below, both are paid in full
        price = Fraction(steps, mean)
        if second is not None and second < steps * mean:
            price += Fraction(steps * steps, 4 * second)
        _, touched = self._touched()
        worst = Fraction(int(touched.max(initial=0))) * price
        if worst * PICO > self._allowance.epsilon.pico:
            return f"a loss of {float(worst):.6g} where {self._allowance.epsilon} was charged"
        return None

    def _state_accounts(self) -> str | None:
        stream = self._stream
        if stream is None:
            return self._forgotten() or "no state"
        vehicle, touched = self._touched()
        place = stream.vehicles.find(vehicle)
        low = int(np.count_nonzero((place < 0) | (stream.nodes_used[place] < touched)))
        return f"{low} accounts say too little" if low else None

    @cached_property
    def _stream(self) -> Stream | None:
        """The state, where there is one."""
        _, parts = vault_releases.load_parts(self._curator.vault, self._stored.release_id)
        return stream_release.restored_stream(self._specification, parts) if parts else None

    def _power(self) -> str:
        """What the test of the law can find in so few, or so many, nodes."""
        try:
            nodes = int(self._stream.bank.drawn.sum()) if self._stream else 0
        except (TrafficdpError, *recomputation.UNREADABLE):
            # the check itself says so
            nodes = 0
        noticed = verification.detection_probability(nodes, 0.5)
        return f"half as much is noticed with probability {verification.probability_text(noticed)}"

    def _law(self) -> str | None:
        if self._stream is None:
            return self._forgotten() or "no state"
        bank, allowance = self._stream.bank, self._allowance
        charged = np.array([allowance.mean_scale, allowance.product_scale], dtype=np.float64)
        law = Laplace(charged[np.nonzero(bank.drawn)[0] % bank.levels])
        # no more than this is said: the draws tell the exact sums
        return None if verification.plausible([(law, bank.noise[bank.drawn])]) else "other noise"

    def _released(self) -> str | None:
        same = publications_match(
            self._curator.store, [to_released_publication(each) for each in self._publications]
        )
        return None if same else "other rows than were published"
