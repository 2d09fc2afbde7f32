from __future__ import annotations

import numpy as np
import pytest

from trafficdp.export.files.disclosure import MechanismFacts
from trafficdp.model import SpeedUnit, Statistic

MS, KMH = SpeedUnit.METRES_PER_SECOND, SpeedUnit.KILOMETRES_PER_HOUR


def mechanism(statistic, scale, bias=0.05):
    return MechanismFacts(statistic, "baseline", "formula", np.array(scale), bias, 1.0, None, "opendp 0.16.0")


def test_scales_are_told_in_display_units_to_the_power_of_the_statistic():
    assert mechanism(Statistic.MEAN, [1.0, 2.0]).stated(MS, KMH).noise_scale_max == pytest.approx(7.2)
    told = mechanism(Statistic.VARIANCE, [1.0, 2.0]).stated(MS, KMH)
    assert told.noise_scale_min == pytest.approx(12.96)
    assert told.unit == "(km/h)²"


def test_bins_without_noise_do_not_count_as_the_smallest_scale():
    told = mechanism(Statistic.MEAN, [0.0, np.nan, 3.0]).stated(MS, MS)
    assert told.noise_scale_min == told.noise_scale_max == 3.0


def test_a_statistic_without_any_noise_has_no_scale():
    told = mechanism(Statistic.VARIANCE, [0.0, np.nan]).stated(MS, MS)
    assert told.noise_scale_min is None
    assert told.noise_scale_max is None


def test_bias_is_rounded_up():
    assert mechanism(Statistic.MEAN, [1.0], bias=0.0501).bias_stated(MS, MS).bias == 0.051
