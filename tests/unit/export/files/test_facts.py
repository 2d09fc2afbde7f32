from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.export.files.disclosure import Noise
from trafficdp.mechanisms.protocol import Statement
from trafficdp.model import ContributionBound, MapRequest, SpeedUnit, Statistic
from trafficdp.privacy.disclosure import NoiseStated

MS, KMH = SpeedUnit.METRES_PER_SECOND, SpeedUnit.KILOMETRES_PER_HOUR


def noise_of(statistic, scale, display_unit=MS, bias=0.05):
    texts = ("mechanism", "citation", "sensitivity", "distribution", "sampler", "interval_basis")
    words = dict.fromkeys((*texts, "post_processing"), "words")
    statement = Statement(noise_scale=np.array(scale), worst_case_bias=bias, share=None, **words)
    request = MapRequest(ContributionBound(Fraction(30), Fraction(1, 10), MS), 5, 0.95, display_unit)
    return Noise(request, {statistic: statement}, NoiseStated(kind="laplace"), "none")


def stated(*arguments):
    (told,), _ = noise_of(*arguments).stated()
    return told


def test_scales_are_told_in_display_units_to_the_power_of_the_statistic():
    assert stated(Statistic.MEAN, [1.0, 2.0], KMH).noise_scale_max == pytest.approx(7.2)
    told = stated(Statistic.VARIANCE, [1.0, 2.0], KMH)
    assert told.noise_scale_min == pytest.approx(12.96)
    assert told.unit == "(km/h)²"


def test_bins_without_noise_do_not_count_as_the_smallest_scale():
    told = stated(Statistic.MEAN, [0.0, np.nan, 3.0])
    assert told.noise_scale_min == told.noise_scale_max == 3.0


def test_a_statistic_without_any_noise_has_no_scale():
    told = stated(Statistic.VARIANCE, [0.0, np.nan])
    assert told.noise_scale_min is None
    assert told.noise_scale_max is None


def test_bias_is_rounded_up():
    _, (bias,) = noise_of(Statistic.MEAN, [1.0], bias=0.0501).stated()
    assert bias.bias == 0.051
