"""What a configuration means, exactly."""

import dataclasses
import re
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from trafficdp.config.document import read_places
from trafficdp.config.file import load_config, template
from trafficdp.errors import ConfigError
from trafficdp.model import (
    DEFAULT_DAY_PARTS,
    NeighbouringRelation,
    SlotKind,
    SourceDeclaration,
    SpeedUnit,
    Statistic,
    UnitPeriod,
)
from trafficdp.privacy.loss import PureDP


def test_a_minimal_configuration_has_the_stated_defaults(load, minimal):
    config = load(minimal)
    assert config.loss is None
    assert config.store is None
    assert config.key_file is None
    assert config.relation is NeighbouringRelation.REPLACE_USER_VALUES
    assert config.policy.total == PureDP.of(8)
    assert config.grid.slot_kind is SlotKind.WHOLE_PERIOD
    assert config.grid.day_parts == DEFAULT_DAY_PARTS
    assert (config.grid.period.first, config.grid.period.last) == (date(2016, 11, 24), date(2016, 11, 27))
    assert config.grid.period.time_zone == config.city.time_zone == "America/Chicago"
    assert config.grid.area.geometry.bounds == (-98.2, 29.9, -97.3, 30.8)
    assert config.map.bound.step == Fraction(1, 100)
    assert config.map.display_unit is SpeedUnit.METRES_PER_SECOND
    assert config.map.min_vehicles == 5
    assert config.map.statistics == (Statistic.MEAN, Statistic.VARIANCE)
    assert config.map.tolerance == {Statistic.MEAN: 1.0, Statistic.VARIANCE: 30.0}
    assert config.map.interval_level == 0.95
    assert config.map.publish_counts is False
    assert config.map.accounting == "best"
    (source,) = config.sources
    assert source.time_format == "iso8601"
    assert source.missing_speed == "reject"
    assert source.sentinels == ()


def test_every_setting_arrives(load, tmp_path, minimal, full):
    config = load(full)
    assert config.store == tmp_path / "city.store"
    assert config.key_file == tmp_path / "keys" / "city.key"
    assert config.loss == PureDP.of(4)
    assert [part.hours[0] for part in config.grid.day_parts] == [20, 8]
    assert config.map.display_unit is SpeedUnit.KILOMETRES_PER_HOUR
    assert config.map.statistics == (Statistic.MEAN, Statistic.VARIANCE)
    assert config.map.tolerance == {Statistic.MEAN: 2.0, Statistic.VARIANCE: 12.5}
    assert (config.map.min_vehicles, config.map.interval_level) == (6, 0.9)
    assert config.map.publish_counts is True
    assert config.map.accounting == "exact"
    assert config.sources == (
        SourceDeclaration(
            name="capmetro",
            format="csv",
            files=("*.csv.gz",),
            units=(
                UnitPeriod(SpeedUnit.MILES_PER_HOUR, None, date(2015, 12, 31)),
                UnitPeriod(SpeedUnit.METRES_PER_SECOND, date(2016, 1, 1), None),
            ),
            columns=minimal["source"][0]["columns"],
            time_format="%d/%m/%Y %H:%M:%S",
            time_zone="America/Chicago",
            sentinels=(Decimal("113.9952"), Decimal(255)),
            missing_speed="derive",
            namespace="city",
            min_kept=Fraction(9, 10),
        ),
    )


@pytest.mark.parametrize(
    ("bound", "step", "steps"),
    [(Decimal("0.3"), Decimal("0.1"), 3), ("16.67", "0.01", 1667), (30, Decimal("0.1"), 300), ("1e1", 1, 10)],
)
def test_bound_and_step_are_the_decimals_as_written(load, bound, step, steps, changed):
    config = load(changed("map.speed_bound", bound, changed("map.speed_step", step)))
    assert config.map.bound.upper == Fraction(str(bound))
    assert config.map.bound.step == Fraction(str(step))
    assert config.map.bound.upper_steps == steps


def test_epsilon_and_budget_are_the_decimals_as_written(load, changed):
    config = load(changed("privacy.epsilon", "0.1", changed("budget.epsilon_per_vehicle", Decimal("0.3"))))
    assert config.loss.exact == Fraction(1, 10)
    assert config.policy.total.exact == Fraction(3, 10)


def test_request_takes_the_configured_epsilon_unless_another_is_given(load, full):
    config = load(full)
    assert config.request().loss == PureDP.of(4)
    request = config.request(PureDP.of(2))
    assert request.loss == PureDP.of(2)
    assert request.map_request == config.map.map_request
    assert request.tolerance == config.map.tolerance
    assert (request.min_vehicles, request.interval_level) == (6, 0.9)
    assert request.accounting == "exact"


def test_request_without_any_epsilon_is_refused(load, minimal):
    with pytest.raises(ConfigError, match=re.escape("[privacy] epsilon is missing")):
        load(minimal).request()


def test_default_tolerance_of_the_variance_is_the_bound(load, minimal, changed):
    config = load(changed("map.statistics", ["vehicle_mean", "variance"], minimal))
    assert config.map.tolerance == {Statistic.VARIANCE: 30.0, Statistic.VEHICLE_MEAN: 1.0}


def test_study_area_is_read_from_geojson_beside_the_configuration(load, changed):
    config = load(changed("city.study_area", {"geojson": "area.geojson"}))
    assert config.grid.area.geometry.bounds == (-98.0, 30.0, -97.0, 31.0)


def test_toml_dates_and_texts_mean_the_same_period(load, full, changed):
    dates = changed("city.period", {"from": date(2016, 11, 24), "to": date(2016, 11, 27)})
    assert load(dates).grid.key == load(full).grid.key


@pytest.mark.parametrize("format_", ["gtfs_rt", "gtfs_rt_csv", "tides", "mds", "siri"])
def test_a_format_whose_specification_fixes_the_unit_needs_neither_unit_nor_columns(load, format_, changed):
    source = {"name": "feed", "format": format_, "files": ["*"]}
    (read,) = load(changed("source", [source])).sources
    assert read.units == (UnitPeriod(SpeedUnit.METRES_PER_SECOND),)
    assert read.columns == {}


@pytest.mark.parametrize("format_", ["csv", "parquet", "iudx"])
def test_a_format_that_does_not_fix_the_unit_must_say_it(refusal, format_, changed):
    message = refusal(changed("source.0.format", format_, changed("source.0.speed_unit", ...)))
    assert message.startswith('[[source]] "capmetro" speed_unit is missing')


def test_geoparquet_names_a_geometry_instead_of_coordinates(load, changed):
    columns = {"vehicle": "id", "time": "t", "geometry": "geom", "speed": "v"}
    (source,) = load(changed("source.0.columns", columns, changed("source.0.format", "parquet"))).sources
    assert source.columns == columns


def test_a_byte_order_mark_is_no_obstacle(load, full, document_text):
    assert load("\ufeff" + document_text(full)) == dataclasses.replace(load(full))


def test_sources_may_be_absent_once_everything_is_ingested(load, changed):
    assert load(changed("source", ...)).sources == ()


def test_places_are_known_before_everything_is_chosen(tmp_path):
    path = tmp_path / "trafficdp.toml"
    path.write_text(template() + "\n")
    assert read_places(path) == (tmp_path / "city.store", None)


def test_places_are_relative_to_the_configuration_unless_absolute(load, changed, tmp_path):
    assert load(changed("store", "../city.store")).store == tmp_path / "../city.store"
    assert load(changed("store", "/srv/city.store")).store == Path("/srv/city.store")


def test_a_key_inside_the_store_is_refused_even_through_a_link(changed, document_text, tmp_path):
    (tmp_path / "city.store").mkdir()
    (tmp_path / "keys").symlink_to(tmp_path / "city.store")
    path = tmp_path / "trafficdp.toml"
    path.write_text(document_text(changed("key_file", "keys/city.key")))
    for read in (load_config, read_places):
        with pytest.raises(ConfigError, match="a file outside the store"):
            read(path)


def test_a_loop_of_links_is_left_to_the_store(load, full, tmp_path):
    (tmp_path / "keys").symlink_to(tmp_path / "keys")
    assert load(full).key_file == tmp_path / "keys" / "city.key"
