import numpy as np
import pytest

from trafficdp.model import OF_MAPS, SpeedUnit, Statistic
from trafficdp.privacy import release as module
from trafficdp.privacy.estimate import NOISE_COLUMNS
from trafficdp.privacy.release import DECIMALS, mechanism_frame, published_frame

KMH, MPH, MS = SpeedUnit.KILOMETRES_PER_HOUR, SpeedUnit.MILES_PER_HOUR, SpeedUnit.METRES_PER_SECOND
EDGE = 1e-9


def test_one_row_a_bin_in_the_order_of_the_release(release_with):
    frame = published_frame(release_with())
    assert frame["hex_id"].tolist() == ["872830828ffffff", "872830829ffffff", "ffffffffffffffff"]
    assert frame["slot"].tolist() == [1479967200, 1479967200, -7]
    assert frame["resolution"].tolist() == [7, 7, 7]
    assert frame["slot_label"][2] == "recurring, named with ü"
    assert frame["slot_start"].isna().tolist() == [False, False, True]
    assert frame["status"].tolist() == ["released", "released", "withheld"]


def test_who_changes_a_table_changes_no_other(release_with, monkeypatch):
    release = release_with()
    whole = published_frame(release)
    first = published_frame(release)
    first.loc[0, "hex_id"] = "changed"
    del first["slot"]
    assert published_frame(release).equals(whole)
    monkeypatch.setattr(module, "KEPT_BINS", 2)
    assert published_frame(release).equals(whole)


def test_numbers_are_turned_into_the_display_unit(release_with):
    frame = published_frame(release_with())
    assert frame["speed_mean_kmh"][0] == round(10.1234567 * 3.6, 3)
    assert frame["speed_variance_kmh2"][0] == round(10.1234567 * 3.6**2, 3)
    assert frame["speed_mean_kmh_noise_scale"][0] == pytest.approx(0.36, abs=1.1e-3)
    in_mph = published_frame(release_with(display=MPH))
    assert in_mph["speed_mean_mph"][0] == round(10.1234567 / 0.44704, 3)
    assert in_mph["speed_vehicle_mean_mph"][0] == round(10.1234567 / 0.44704, 3)
    unchanged = published_frame(release_with(display=MS))
    assert unchanged["speed_mean_ms_low"][0] == 9.0
    assert unchanged["speed_mean_ms_high"][0] == 11.001
    assert unchanged["speed_mean_ms_expected_error"][0] == 0.1


def test_withheld_bins_have_no_numbers(release_with):
    frame = published_frame(release_with())
    for statistic in OF_MAPS:
        name = statistic.column(KMH)
        for part in ("", "_low", "_high", "_noise_scale", "_expected_error"):
            assert frame[name + part].isna().tolist() == [False, False, True]
        assert np.isnan(mechanism_frame(release_with())[f"{statistic.stem}_lattice_scale"][2])
        assert f"{statistic.stem}_lattice_scale" not in frame
        assert frame[f"{statistic.stem}_status"].tolist() == ["released", "constant", "withheld"]
        kind = frame[f"{statistic.stem}_interval_kind"]
        assert kind.dropna().tolist() == ["guaranteed"] * 2
        assert kind.isna().tolist() == [False, False, True]


def test_the_lattice_is_published_to_the_last_bit(release_with):
    frame = mechanism_frame(release_with())
    assert frame["speed_mean_lattice_scale"][0] == 1.0000000000000002
    assert frame["speed_mean_shift"].tolist() == [1, 2**62, 0]


def test_counts_stay_at_home_unless_they_were_to_be_published(release_with):
    assert published_frame(release_with())["records"].tolist() == [100, 7, 2**40]
    hidden = published_frame(release_with(counts=False))
    assert hidden["vehicles"].isna().all()
    assert hidden["records"].isna().all()


def test_only_the_statistics_of_the_release_have_columns(release_with):
    frame = published_frame(release_with((Statistic.VARIANCE,)))
    assert not [name for name in frame if name.startswith(("speed_mean", "speed_vehicle"))]


@pytest.mark.slow
@pytest.mark.parametrize("display", [KMH, MPH, MS])
@pytest.mark.parametrize("unit", [KMH, MPH, MS])
def test_rounding_never_narrows_an_interval_or_flatters_the_noise(release_with, unit, display):
    random = np.random.default_rng(8)
    for _ in range(40):
        low = random.uniform(0, 30, 3).round(random.integers(0, 8))
        high = low + random.choice([0, 1e-9, 1e-4, 0.01, 3]) * random.uniform(0, 1, 3)
        value = low + (high - low) * random.choice([0, 0.5, 1], 3)
        release = release_with(
            display=display, unit=unit, value=value, low=low, high=high, noise_scale=high, expected_error=low
        )
        frame = published_frame(release)
        for statistic in OF_MAPS:
            name = statistic.column(display)
            factor = float(unit.factor_to(display)) ** statistic.power
            published = {part: frame[name + part].to_numpy() for part in ("", "_low", "_high")}
            assert np.all(published["_low"] <= published[""])
            assert np.all(published[""] <= published["_high"])
            assert np.all(published["_low"] <= low * factor + EDGE)
            assert np.all(published["_high"] >= high * factor - EDGE)
            assert np.all(published["_low"] > low * factor - 10.0**-DECIMALS - EDGE)
            assert np.all(published["_high"] < high * factor + 10.0**-DECIMALS + EDGE)
            assert np.all(np.abs(published[""] - value * factor) <= 0.5 * 10.0**-DECIMALS + EDGE)
            assert np.all(frame[f"{name}_noise_scale"] >= high * factor - EDGE)
            assert np.all(frame[f"{name}_expected_error"] >= low * factor - EDGE)


def test_what_stands_for_the_rank_of_a_withheld_bin_is_the_rank_of_no_vehicle():
    # the slowest is the first
    assert all(NOISE_COLUMNS[name].withheld < 1 for name in ("rank_low", "rank_high"))
