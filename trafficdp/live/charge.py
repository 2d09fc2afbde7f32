"""Charging a stream: once, in the ledger first, for every vehicle that will ever be in it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from trafficdp.binning.slots import slots_of
from trafficdp.config.file import Config, declaration_json
from trafficdp.config.stream import StreamSettings
from trafficdp.context.read import read_context
from trafficdp.errors import ConfigError, InsufficientBudgetError, UsageError
from trafficdp.export.files.columns import FileFacts
from trafficdp.export.files.manifest import build_manifest
from trafficdp.export.write import MANIFEST
from trafficdp.live.specification import StreamSpecification, release_of
from trafficdp.model import Statistic
from trafficdp.privacy.budget import left
from trafficdp.privacy.ledger import GENESIS
from trafficdp.privacy.loss import PureDP
from trafficdp.privacy.release import LedgerReference
from trafficdp.privacy.release_codec import encode
from trafficdp.release.curator import Curator
from trafficdp.store import vault_ledger, vault_stream
from trafficdp.stream.horizon import Horizon
from trafficdp.stream.service import Closed

SAID = (Statistic.MEAN, Statistic.VARIANCE)
"""What a stream can say."""


def charged_stream(
    curator: Curator, config: Config, *, again: bool, reached: Callable[[str], None]
) -> tuple[vault_stream.StoredStream, StreamSpecification]:
    """Return the running stream of ``config``, charged now if there is none.

    Every vehicle will lose the stream's epsilon, but only when its first record is taken: until then it has a
    row in no account. Vehicles that cannot pay it are left out of the stream.

    Raises UsageError when a stream with another configuration runs, or one that asked the same is over
    (unless ``again``); ConfigError for what cannot be streamed; InsufficientBudgetError when not even a
    vehicle that has spent nothing could pay.
    """
    wanted = wanted_specification(curator, config)
    for stored in reversed(vault_stream.all_streams(curator.vault)):
        specification = StreamSpecification.from_json(stored.facts)
        same = specification.same_question(wanted)
        if not stored.ended:
            if not same:
                raise UsageError(
                    f"the stream {stored.release_id} is running under another configuration",
                    expected="the configuration that it was charged under",
                    todo="restore it, or end the stream with `trafficdp stream --end`",
                )
            return stored, specification
        if same and not again:
            raise UsageError(
                f"the stream {stored.release_id} asked just this, and is over",
                todo="begin another, which charges every vehicle again, with --again",
            )
    _rehearse(wanted)
    with curator.vault.transaction("charging the stream"):
        vault_stream.make_tables(curator.vault)
        text = wanted.to_json()
        entry = vault_ledger.add_entry(
            curator.vault,
            {
                "kind": "stream",
                "release": wanted.release_id,
                "at": wanted.created_at.isoformat(),
                "epsilon_pico": wanted.epsilon.pico,
                "specification_sha256": hashlib.sha256(text.encode()).hexdigest(),
                **config.policy.facts(),
            },
        )
        vault_stream.add_stream(curator.vault, wanted.release_id, entry.sequence, text)
    reached("charged")
    curator.head.write(entry)
    return vault_stream.stream_named(curator.vault, wanted.release_id), wanted


def running_stream(curator: Curator) -> tuple[vault_stream.StoredStream, StreamSpecification]:
    """Return the stream that runs, whatever the configuration says; raise UsageError when there is none."""
    for stored in vault_stream.all_streams(curator.vault):
        if not stored.ended:
            return stored, StreamSpecification.from_json(stored.facts)
    raise UsageError("no stream is running", todo="begin one with `trafficdp stream FOLDER`")


def wanted_specification(curator: Curator, config: Config) -> StreamSpecification:
    """Return the specification of a stream that ``config`` would charge now; raises as ``charged_stream``."""
    vault, (settings, epsilon) = curator.vault, _settings(config)
    at = datetime.now(UTC).replace(microsecond=0)
    _check_budget(curator, config, epsilon, at)
    horizon = Horizon.of(config.grid, settings.publish_every, settings.lateness)
    return StreamSpecification(
        release_id=f"s{len(vault_stream.all_streams(vault)) + 1:04d}",
        created_at=at,
        publisher=config.city.publisher,
        place=config.city.name,
        grid=replace(config.grid, context=read_context(config.context, config.grid.area)),
        bound=config.bound,
        display_unit=config.map.display_unit,
        statistics=tuple(each for each in SAID if each in config.map.statistics),
        interval_level=config.map.interval_level,
        min_vehicles=config.map.min_vehicles,
        publish_counts=config.map.publish_counts,
        epsilon=epsilon,
        budget=config.budget,
        spent_before=PureDP(vault_ledger.totals(vault).sum_of_maxima),
        settings=settings,
        horizon=horizon,
        tree=horizon.tree(),
        sources=tuple(
            (
                source.name,
                declaration_json(source),
                "mixed" if source.missing_speed == "derive" else "reported",
            )
            for source in config.sources
        ),
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
    return settings.model_copy(update={"epsilon": epsilon}), epsilon


def _check_budget(curator: Curator, config: Config, epsilon: PureDP, at: datetime) -> None:
    nobody = np.zeros(1, dtype=np.int64)
    windows = config.policy.windows(at)
    could = PureDP(int(left(windows, [nobody] * len(windows))[0]))
    if epsilon > could:
        raise InsufficientBudgetError(remaining=could.epsilon, requested=epsilon.epsilon)
    # no vehicle yet: this looks at the clock
    vault_ledger.require_budget(curator.vault, nobody[:0], nobody[:0], config.policy, at)


def _rehearse(specification: StreamSpecification) -> None:
    """Raise before the charge what would fail after it: a publication of two records of speed 0."""
    one = np.ones(1, dtype=np.int64)
    grid = specification.grid
    instant = specification.horizon.origin_us * one
    closed = Closed(
        step=0,
        journal={},
        cell=_SOME_CELL * one,
        slot=slots_of(instant, grid.slot_kind, grid.period.time_zone, grid.day_parts),
        records=2 * one,
        vehicles=specification.min_vehicles * one,
        sums=np.zeros((1, specification.empty_stream().bank.levels), dtype=np.int64),
        terms=one,
    )
    release = release_of(specification, closed, 1, LedgerReference(1, GENESIS), GENESIS)
    build_manifest(release, {MANIFEST: FileFacts(MANIFEST, GENESIS, 1, ())})
    encode(release)


_SOME_CELL = int("8928308280fffff", 16)
