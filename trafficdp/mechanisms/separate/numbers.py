"""From the estimates of mechanisms to published numbers: what is shared, whatever the kind of loss.

Expected errors and half widths are the calibrated mechanism's own and come from counts alone; the rest is
``publish``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from trafficdp.errors import StoreDamagedError, UsageError
from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.mechanisms.publish import Drawn, estimate
from trafficdp.mechanisms.settings import Settings, in_words, settings_of
from trafficdp.mechanisms.zcdp_mechanism import ZCDPMechanism
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.release import Estimate

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples
    from trafficdp.sensitive.values import Values

FloatArray = npt.NDArray[np.float64]


class Part(Protocol):
    """One statistic of a calibrated mechanism: its mechanism by name, and with its settings."""

    @property
    def mechanism(self) -> str:
        """Its name in the registry."""

    @property
    def named(self) -> Mechanism | ZCDPMechanism:
        """The mechanism itself."""


def published_mechanisms(parts: Mapping[Statistic, Part]) -> dict[str, Any]:
    """Return what the manifest says of ``parts``: the name and every setting of their mechanisms."""
    return {
        "mechanisms": {each.value: parts[each].mechanism for each in in_order(parts)},
        "settings": {
            each.value: [
                {"name": name, "value": value} for name, value in settings_of(parts[each].named).items()
            ]
            for each in in_order(parts)
        },
    }


def mechanisms_from_published(facts: Mapping[str, Any]) -> dict[Statistic, tuple[str, Settings]]:
    """Return name and settings of every statistic's mechanism.

    Raises UsageError unless every mechanism has its settings, each once.
    """
    listed = facts.get("settings", {})
    settings = {name: {each["name"]: each["value"] for each in own} for name, own in listed.items()}
    twice = any(len(own) != len(settings[name]) for name, own in listed.items())
    if twice or settings.keys() != facts["mechanisms"].keys():
        raise UsageError("settings are not published once, of a statistic with a mechanism")
    return {
        Statistic(statistic): (str(name), settings[statistic])
        for statistic, name in facts["mechanisms"].items()
    }


def with_words(mechanism: Mechanism | ZCDPMechanism) -> str:
    """Return the settings as the end of a sentence; nothing for a mechanism that has none."""
    settings = settings_of(mechanism)
    return f"; its settings: {in_words(settings)}" if settings else ""


def in_order(statistics: Mapping[Statistic, object]) -> tuple[Statistic, ...]:
    """Return the keys in the order of Statistic."""
    return tuple(statistic for statistic in Statistic if statistic in statistics)


def samples_of(values: Values) -> Samples:
    """Return every value; raise StoreDamagedError when they are not those of the counts."""
    samples = values.read_samples()
    if not np.array_equal(samples.counts.count, values.contributions.counts.count):
        raise StoreDamagedError(
            "the samples are not those of the counts", todo="restore the newest backup of the store"
        )
    return samples


def constant_bins(statistic: Statistic, counts: Counts) -> npt.NDArray[np.bool_]:
    """Return the bins whose statistic is 0 whatever the speeds: variances of one record."""
    alone: npt.NDArray[np.bool_] = counts.samples_per_bin == 1
    return alone & (statistic is Statistic.VARIANCE)


def zero_where_constant(numbers: FloatArray, statistic: Statistic, counts: Counts) -> FloatArray:
    """Return ``numbers`` (shape (G,)) with 0 in the bins where nothing can vary."""
    return np.where(constant_bins(statistic, counts), 0.0, numbers)


def numbers_of(
    drawn: Mapping[Statistic, Drawn],
    counts: Counts,
    bound: ContributionBound,
    uninformative_above: float,
) -> dict[Statistic, Estimate]:
    """Return the published numbers; what nothing can vary in is 0, whatever its mechanism drew."""
    found: dict[Statistic, Estimate] = {}
    for statistic in in_order(drawn):
        own = drawn[statistic]
        own = replace(own, value=zero_where_constant(own.value, statistic, counts))
        found[statistic] = estimate(statistic, own, bound, uninformative_above, found.get(Statistic.MEAN))
    return found
