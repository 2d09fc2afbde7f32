"""A stream is charged as a release is, and each of its publications is a release of the bins so far."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import IntArray
from trafficdp.binning.places import slots_of
from trafficdp.config.file import declaration_json
from trafficdp.config.settings import Config, StreamSettings
from trafficdp.errors import ConfigError, InsufficientBudgetError, UsageError
from trafficdp.export.files import disclosure
from trafficdp.export.files.catalogue import FileFacts
from trafficdp.export.files.manifest import build_manifest
from trafficdp.export.write import MANIFEST
from trafficdp.mechanisms.running_sums import RunningSums
from trafficdp.model import NeighbouringRelation, Statistic, rfc3339, zone_of
from trafficdp.privacy.budget import BudgetPolicy, remaining_loss
from trafficdp.privacy.disclosure import BinNumbers, NoiseStated, StreamStated, TreeShape
from trafficdp.privacy.estimate import RefusalRule
from trafficdp.privacy.ledger import GENESIS
from trafficdp.privacy.loss import PureDP
from trafficdp.privacy.release import LedgerReference, Release, encode
from trafficdp.release import specification as release_specification
from trafficdp.release.curator import Curator
from trafficdp.release.results import context_of
from trafficdp.store import vault_fixes, vault_ledger, vault_releases
from trafficdp.stream.horizon import MINUTE_US, Horizon
from trafficdp.stream.service import ClosedStep, Stream

BOUNDING = (
    "speeds are clipped to the range, never dropped; a vehicle's records count until its account is used up"
)
RELATION = NeighbouringRelation.REPLACE_USER_VALUES
RULES = (
    "outside the period, or further ahead of the clock than 5 minutes: left out",
    "late (its step was published already): left out",
    "the same vehicle and instant again: left out, the first stays",
    "more records of one vehicle in a step than records_per_step: the first count",
    "vehicles that cannot pay the whole epsilon, or whose account is used up: left out",
)
SAID = (Statistic.MEAN, Statistic.VARIANCE)
"""What a stream can say."""
_SOME_CELL = int("8928308280fffff", 16)


def charged_stream(
    curator: Curator, config: Config, *, again: bool, failpoint: Callable[[str], None]
) -> vault_releases.StoredStream:
    """Return the running stream of ``config``, charged now if there is none.

    Every vehicle will lose the stream's epsilon, but only when its first record is taken: until then it has a
    row in no account. Vehicles that cannot pay it are left out of the stream.

    Raises UsageError when a stream with another configuration runs, or one that asked the same is over
    (unless ``again``); ConfigError for what cannot be streamed; InsufficientBudgetError when not even a
    vehicle that has spent nothing could pay.
    """
    wanted = configured_stream_specification(curator, config)
    for stored in reversed(vault_releases.all_streams(curator.vault)):
        same = same_stream(release_specification.Specification.from_json(stored.facts), wanted)
        if not stored.ended:
            if not same:
                raise UsageError(
                    f"the stream {stored.release_id} is running under another configuration",
                    expected="the configuration that it was charged under",
                    todo="restore it, or end the stream with `trafficdp stream --end`",
                )
            return stored
        if same and not again:
            raise UsageError(
                f"the stream {stored.release_id} asked just this, and is over",
                todo="begin another, which charges every vehicle again, with --again",
            )
    rehearse(wanted)
    epsilon = running_sums_of(wanted).allowance.epsilon
    with curator.vault.transaction("charging the stream"):
        promise = vault_ledger.settle_promise(curator.vault, config.promise, datetime.now(UTC))
        _check_budget(curator, promise.policy, epsilon, wanted.created_at)
        curator.vault.make_tables("stream")
        text = wanted.to_json()
        entry = vault_ledger.add_entry(
            curator.vault,
            {
                "kind": "stream",
                "release": wanted.release_id,
                "at": wanted.created_at.isoformat(),
                "epsilon_pico": epsilon.pico,
                "specification_sha256": hashlib.sha256(text.encode()).hexdigest(),
            },
        )
        vault_releases.add_stream(curator.vault, wanted.release_id, entry.sequence, text)
    failpoint("charged")
    curator.head.write(entry)
    return vault_releases.stream_named(curator.vault, wanted.release_id)


def configured_stream_specification(curator: Curator, config: Config) -> release_specification.Specification:
    """Return the specification that a new stream under ``config`` would be charged for; charges nothing.

    Raises as ``charged_stream``.
    """
    vault, (settings, epsilon) = curator.vault, _settings(config)
    at = datetime.now(UTC)
    _check_budget(curator, config.policy, epsilon, at)
    sums = RunningSums.calibrate(
        tuple(each for each in SAID if each in config.map.statistics),
        config.map.bound,
        Horizon.of(config.grid, settings.publish_every, settings.lateness),
        epsilon,
        records_per_vehicle=settings.records_per_vehicle,
        records_per_step=settings.records_per_step,
    )
    # what names a vehicle decides on its account: as long as the stream runs it is the same
    read_as = [[source.name, declaration_json(source)] for source in config.sources]
    sources = tuple(
        release_specification.source_facts(
            declared, source.name, "mixed" if source.missing_speed == "derive" else "reported"
        )
        for source, (_, declared) in zip(config.sources, read_as, strict=True)
    )
    nothing_yet = vault_fixes.DataVersion(0, "")
    context = replace(context_of(config, vault, nothing_yet, config.grid, at), sources=sources)
    # bins and noise scales follow with its publications
    return release_specification.specification_without_bins(
        context,
        f"s{len(vault_releases.all_streams(vault)) + 1:04d}",
        calibrated={**sums.to_facts(), "sources": read_as},
        bins=BinNumbers(total=0, released=0, constant=0, withheld=0, uninformative=0),
        bounds=disclosure.bounds_of(sums.bound, BOUNDING, None, None),
        charge=disclosure.Charge(
            relation=RELATION,
            loss=epsilon,
            sum_before=PureDP(vault_ledger.totals(vault).sum_of_maxima),
            budget=context.budget,
            composition=sums.composition,
            budget_changes=context.budget_changes,
            vehicles=None,
        ),
        noise=disclosure.Noise(
            request=config.map.map_request,
            statements={each: sums.statement(each) for each in sums.statistics},
            noise=NoiseStated(kind="stream"),
            tuning_data=disclosure.TUNING_DATA,
        ),
        verdict=disclosure.Verdict(forced=False, threshold=1.0, value=0.0, rule=RefusalRule.INTERVAL),
    )


def _settings(config: Config) -> tuple[StreamSettings, PureDP]:
    """The settings, and the epsilon; raises ConfigError for what cannot be streamed."""
    settings = config.stream
    if settings is None:
        raise ConfigError(
            "[stream] is missing",
            expected="publish_every and records_per_vehicle",
            todo="add the table [stream] to the configuration file",
        )
    epsilon = settings.epsilon or config.loss
    if not isinstance(epsilon, PureDP):
        raise ConfigError("[stream] epsilon is missing", expected="a number above 0", todo="set it")
    if not set(config.map.statistics) <= set(SAID):
        raise ConfigError(
            "[map] statistics cannot be streamed",
            got=", ".join(each.value for each in config.map.statistics),
            expected=", ".join(each.value for each in SAID),
        )
    if config.grid.zones is not None:
        raise ConfigError(
            "a stream has hexagons",
            got="[map] zones",
            todo="give [map] resolution instead, in a file of its own",
        )
    if not config.grid.selection.everything:
        raise ConfigError("a stream covers the whole study area and period", got="a selection of them")
    if not config.sources:
        raise ConfigError("no source is declared", todo="add a [[source]]")
    return settings, epsilon


def _check_budget(curator: Curator, policy: BudgetPolicy, epsilon: PureDP, at: datetime) -> None:
    nobody = np.zeros(1, dtype=np.int64)
    windows = policy.windows(at)
    could = PureDP(int(remaining_loss(windows, [nobody] * len(windows))[0]))
    if epsilon > could:
        raise InsufficientBudgetError(remaining=could.exact, requested=epsilon.exact)
    # no vehicle yet: this looks at the clock
    vault_ledger.require_budget(curator.vault, nobody[:0], nobody[:0], policy, at)


def running_sums_of(specification: release_specification.Specification) -> RunningSums:
    """Return the mechanism of a stream's running sums, rebuilt from what ``specification`` froze."""
    return RunningSums.from_facts(specification.calibrated, specification.request.bound)


def restored_stream(
    specification: release_specification.Specification,
    parts: Mapping[str, Mapping[str, npt.NDArray[np.generic]]],
) -> Stream:
    """Return the stream restored from its saved arrays ``parts``, by part and name; if empty, a new one."""
    enough = None if specification.request.publish_counts else specification.request.min_vehicles
    return running_sums_of(specification).stream(parts, enough)


def same_stream(one: release_specification.Specification, other: release_specification.Specification) -> bool:
    """Return whether two specifications ask for the same stream: grid, mechanism, place, publisher, sources.

    Name, time, earlier spending, budget and context may differ.
    """
    facts = [
        (
            each.grid.key,
            each.request,
            {**each.calibrated, "tree": None},
            each.disclosure.identity.publisher,
            each.disclosure.coverage.place,
            each.disclosure.data.sources,
        )
        for each in (one, other)
    ]
    return facts[0] == facts[1]


def publication_of(
    specification: release_specification.Specification,
    closed: ClosedStep,
    number: int,
    ledger: LedgerReference,
    data_version: str,
) -> Release:
    """Return the release that publishes a stream's map after the step ``closed``.

    ``closed`` holds the counts and noisy sums of all bins so far, ``number`` is the publication's, and
    ``data_version`` names the records that it was made from.
    """
    sums, order = running_sums_of(specification), np.lexsort((closed.slot, closed.cell))
    keep = closed.vehicles[order] >= specification.request.min_vehicles
    names = ("cell", "slot", "records", "vehicles", "sums", "terms")
    columns = {name: getattr(closed, name)[order] for name in names}
    kept = ClosedStep(closed.step, {}, **{name: values[keep] for name, values in columns.items()})
    estimates = sums.estimates(kept, interval_level=specification.request.interval_level)
    upper, frozen = float(specification.request.bound.upper), specification.disclosure
    shares = [(each.high - each.low) / each.statistic.largest(upper) for each in estimates.values()]
    widest = max((float(np.median(share)) for share in shares if len(share)), default=0.0)
    scales = [
        disclosure.scales_stated(each.statistic, each.noise_scale, specification.request)
        for each in estimates.values()
    ]
    bins = release_specification.ListedBins(
        columns["cell"].astype(np.uint64), columns["slot"], columns["vehicles"], columns["records"]
    )
    stated = replace(
        frozen,
        data=replace(frozen.data, data_version=data_version),
        mechanisms=tuple(
            replace(each, noise_scale_min=low, noise_scale_max=high)
            for each, (low, high) in zip(frozen.mechanisms, scales, strict=True)
        ),
        honesty=replace(
            frozen.honesty, forced=widest >= 1, refusal=replace(frozen.honesty.refusal, value=widest)
        ),
        noise=NoiseStated(kind="stream", stream=stream_facts(specification, closed.step, number)),
    )
    return release_specification.assemble_release(
        replace(specification, disclosure=stated), bins, keep, estimates, ledger
    )


def stream_facts(specification: release_specification.Specification, step: int, number: int) -> StreamStated:
    """Return what the manifest says of the stream and of its publication ``number`` (from 1).

    It was made at the end of the ``step`` (from 0) of the stream's time.
    """
    sums = running_sums_of(specification)
    allowance, horizon = sums.allowance, sums.horizon
    return StreamStated(
        publication=number,
        as_of=rfc3339(horizon.end_of(step), zone_of(specification.grid.period.time_zone)),
        publish_every_minutes=horizon.step_us // MINUTE_US,
        lateness_minutes=horizon.lateness_us // MINUTE_US,
        steps=horizon.steps,
        records_per_vehicle=allowance.records_per_vehicle,
        records_per_step=sums.records_per_step or None,
        nodes_per_vehicle=allowance.nodes_per_vehicle,
        tree=TreeShape(arity=allowance.arity, heights=allowance.heights),
        value_steps=allowance.value_steps,
        rules=RULES,
    )


def rehearse(specification: release_specification.Specification) -> None:
    """Make and discard a publication of two records of speed 0, so that errors come before the charge.

    Raises whatever making, encoding or describing a publication of ``specification`` raises.
    """
    sums, grid = running_sums_of(specification), specification.grid
    one = np.ones(1, dtype=np.int64)
    closed = ClosedStep(
        step=0,
        journal={},
        cell=_SOME_CELL * one,
        slot=slots_of(sums.horizon.origin_us * one, grid.slot_kind, grid.period.time_zone, grid.day_parts),
        records=2 * one,
        vehicles=specification.request.min_vehicles * one,
        sums=np.zeros((1, sums.stream().bank.levels), dtype=np.int64),
        terms=one,
    )
    release = publication_of(specification, closed, 1, LedgerReference(1, GENESIS), GENESIS)
    build_manifest(release, {MANIFEST: FileFacts(MANIFEST, GENESIS, 1, ())})
    encode(release)


def next_digest(before: str, step: int, journal: Mapping[str, IntArray]) -> str:
    """Return the SHA-256 over the digest ``before``, ``step`` and the step's counts, as hexadecimal digits.

    ``journal`` holds the columns cell, slot, vehicle, records and position of ``ClosedStep``; the order of
    rows does not matter. So each digest pins the counts of all steps up to its own.
    """
    names = ("cell", "slot", "vehicle", "records", "position")
    rows = np.stack([np.asarray(journal[name], dtype=np.int64) for name in names], axis=1)
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
    return hashlib.sha256(f"{before}\n{step}\n".encode() + rows.astype("<i8").tobytes()).hexdigest()
