"""The numbers of a city: their ranges, what a variation changes, what a released map says."""

import inspect
import json
from dataclasses import asdict, fields

import numpy as np
import pytest

from trafficdp.errors import DataError, UsageError
from trafficdp.simulation.city import (
    RANGES,
    TRIPS_BY_HOUR,
    CityModel,
    like_release,
    log_normal_factors,
    variations,
)


def test_every_number_has_a_range_a_default_and_a_source():
    names = {each.name for each in fields(CityModel)}
    assert set(RANGES) == names
    # Python 3.13 takes indents away from docstrings
    told = f"\n{inspect.getdoc(CityModel)}"
    for name in names:
        assert f"\n{name} : " in told or f"{name}, " in told or name == "longitude"


@pytest.mark.parametrize("name", sorted(RANGES))
def test_a_number_out_of_its_range_is_refused_by_name(name):
    for wrong in (RANGES[name][0] - 0.01, RANGES[name][1] + 0.01, float("nan")):
        with pytest.raises(UsageError, match=name):
            CityModel(**{name: wrong})
    for right in RANGES[name]:
        assert getattr(CityModel(**{name: right}), name) == right


def test_a_variation_changes_one_number():
    usual = asdict(CityModel())
    changed = {}
    for name, model in variations().items():
        differing = {key for key, value in asdict(model).items() if value != usual[key]}
        changed[name] = differing
    assert changed.pop("usual") == set()
    assert all(len(each) == 1 for each in changed.values())
    assert len(changed) == 10
    # the extremes of what is allowed can still be varied
    assert variations(CityModel(cell_spread=3, level=30))["four_times_cell_spread"].cell_spread == 3


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_the_busiest_vehicles_send_the_share_that_is_asked(share):
    # the law itself, by its quantiles: no draws
    model = CityModel(top_share=share)
    from scipy.special import ndtri

    part = (np.arange(10**6) + 0.5) / 10**6
    weight = np.exp(model.fleet_sigma * ndtri(part))
    assert weight[-(10**4) :].sum() / weight.sum() == pytest.approx(share, rel=0.02)


def test_the_median_of_the_published_fleet_follows_from_its_share():
    # 79 records on average, 46 in the median: the ratio of a log-normal law is exp(sigma^2 / 2)
    assert np.exp(CityModel().fleet_sigma ** 2 / 2) == pytest.approx(17_166 / 217 / 46, rel=0.02)


def test_hours_change_speeds_but_not_the_level():
    hours = np.arange(24)
    for swing in (0.0, 0.2, 0.4):
        factor = CityModel(hour_swing=swing).hour_factors(hours)
        assert np.average(1 / factor, weights=TRIPS_BY_HOUR) == pytest.approx(1)
        assert factor.max() / factor.min() == pytest.approx((1 + swing) / (1 - swing))
        assert factor[8] == factor.min()


@pytest.mark.parametrize("spread", [0.0, 0.15, 1 / 3, 4 / 3])
def test_factors_have_mean_one_and_the_spread_that_is_asked(spread):
    # by Gauss-Hermite quadrature, exact for these smooth functions
    node, weight = np.polynomial.hermite_e.hermegauss(80)
    factor, weight = log_normal_factors(node, spread), weight / weight.sum()
    mean = np.average(factor, weights=weight)
    assert mean == pytest.approx(1)
    assert np.sqrt(np.average((factor - mean) ** 2, weights=weight)) == pytest.approx(spread, abs=1e-6)


def released(folder, means, error=1.0, unit="kmh"):
    name = f"speed_mean_{unit}"
    row = {f"{name}_low": 0, f"{name}_expected_error": error, "speed_mean_status": "released"}
    features = [{"properties": {"hex_id": "x", name: mean, **row}} for mean in means]
    features.append(
        {"properties": {name: None, f"{name}_expected_error": None, "speed_mean_status": "withheld"}}
    )
    path = folder / "map.geojson"
    path.write_text(json.dumps({"features": features}), encoding="utf-8")
    return path


def test_a_city_like_a_released_map_has_its_level_and_spread(tmp_path):
    model = like_release(released(tmp_path, [18.0, 54.0]))
    assert model.level == pytest.approx(10)
    # variance 18^2, of which noise makes 2
    assert model.cell_spread == pytest.approx(np.sqrt(18**2 - 2) / 36)
    assert asdict(model) | {"level": 0, "cell_spread": 0} == asdict(CityModel()) | {
        "level": 0,
        "cell_spread": 0,
    }
    # all that is seen is noise
    assert like_release(released(tmp_path, [18.0, 54.0], error=20)).cell_spread == 0


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"features": []}', '{"features": [{"properties": {"a": 1}}]}']
)
def test_a_file_that_is_no_released_map_is_refused(tmp_path, text):
    path = tmp_path / "map.geojson"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"map\.geojson"):
        like_release(path)


def test_one_released_mean_says_nothing_of_spread(tmp_path):
    with pytest.raises(DataError, match="two hexagons"):
        like_release(released(tmp_path, [18.0]))
