"""`trafficdp init`: what must be chosen is left open, and nothing that is there is touched."""

import io
import json
import re
import stat
import tomllib

import pytest

from trafficdp.config.file import template

OPEN = [
    "[city] name",
    "[city] publisher",
    "[city] time_zone",
    "[city] study_area",
    "[city] period",
    "[privacy] relation",
    "[budget] epsilon_per_vehicle",
    "[map] resolution",
    "[map] speed_bound",
    "[map] speed_unit",
    "[map] fleet",
    "[[source]] name",
    "[[source]] format",
    "[[source]] files",
    "[[source]] speed_unit",
    "[[source]] columns",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_init_writes_a_configuration_a_store_and_a_key_outside_it(folder, command):
    result = command("init")
    assert (result.code, result.err) == (0, "")
    assert (folder / "trafficdp.toml").read_text() == template()
    assert (folder / "city.store" / "vault.duckdb").is_file()
    key = folder / "city.store.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert not any("key" in path.name for path in (folder / "city.store").rglob("*"))
    heads = list(folder.glob("city.store.key*.head"))
    assert len(heads) == 1
    assert stat.S_IMODE(heads[0].stat().st_mode) == 0o600
    # the secret itself is never printed
    secret = re.search(r"[0-9a-f]{64}", key.read_text()).group()
    assert secret not in result.out
    for said in ("trafficdp.toml", "city.store.key", "CHOOSE", "back up"):
        assert said in result.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("plan",),
        ("release", "--yes", "--force"),
        ("releases",),
        ("ledger",),
        ("verify", "r0001"),
        ("withdraw", "--yes", "r0001"),
        ("export", "r0001", "--to", "csv", "x.csv"),
        ("ingest", "--dry-run", "trafficdp.toml"),
    ],
    ids=lambda value: value[0],
)
def test_no_command_runs_before_every_choice_is_made_and_all_open_ones_are_named(
    folder, command, refusal, arguments
):
    assert command("--quiet", "init").code == 0
    before = names(folder)
    message = refusal(2, *arguments)
    assert "has 16 keys still to be chosen" in message
    assert message.split("; got ")[1].split("; replace")[0].split(", ") == OPEN
    assert names(folder) == before


def test_relation_unit_area_and_period_have_no_default(empty, refusal):
    for line, where in (
        ('relation = "replace_user_values"\n', "[privacy] relation"),
        ('speed_unit = "m/s"\nmin', "[map] speed_unit"),
        ('speed_unit = "m/s"\ncol', '[[source]] "buses" speed_unit'),
        ("study_area = { bbox = [16.20, 48.10, 16.60, 48.30] }\n", "[city] study_area"),
        ('period = { from = "2026-03-02", to = "2026-03-03" }\n', "[city] period"),
    ):
        text = empty.config.read_text()
        empty.change(line, line.split("\n")[1])
        assert f"{where} is missing" in refusal(2, "status")
        empty.config.write_text(text)


def test_a_second_init_is_exit_2_and_changes_nothing(released, refusal):
    before = released.dump()
    assert "there is a store here already" in refusal(2, "init")
    assert "there is a store here already" in refusal(2, "--store", "city.store", "init")
    assert released.dump() == before


def test_an_existing_configuration_is_kept_and_its_places_are_used(folder, command):
    text = 'store = "here/store"\nkey_file = "there/key"\nother = "CHOOSE"\n'
    (folder / "trafficdp.toml").write_text(text)
    result = command("--json", "init")
    assert result.code == 2
    assert names(folder) == ["trafficdp.toml"]
    (folder / "trafficdp.toml").write_text(text.replace("other", "[city]\nname"))
    result = command("--json", "init")
    assert result.json["config_written"] is False
    assert (folder / "here/store/vault.duckdb").is_file()
    assert stat.S_IMODE((folder / "there/key").stat().st_mode) == 0o600
    assert (folder / "trafficdp.toml").read_text().endswith('name = "CHOOSE"\n')


def test_init_with_only_a_store_puts_it_there(folder, command):
    result = command("--json", "--store", "elsewhere/big.store", "init")
    assert result.json == {
        "config": "trafficdp.toml",
        "store": "elsewhere/big.store",
        "key_file": "elsewhere/big.store.key",
        "config_written": True,
    }
    assert (folder / "elsewhere/big.store/vault.duckdb").is_file()
    assert (folder / "elsewhere/big.store.key").is_file()


def test_a_key_that_is_there_is_taken_never_replaced(folder, command):
    assert command("--quiet", "--store", "a.store", "init").code == 0
    key = (folder / "a.store.key").read_bytes()
    (folder / "b.store.key").write_bytes(key)
    (folder / "b.store.key").chmod(0o600)
    assert "took the key that was there" in command("--store", "b.store", "init").out
    assert (folder / "b.store.key").read_bytes() == key


@pytest.mark.parametrize(
    ("key", "says"), [("", "is not a key"), ("password\n", "is not a key"), (None, "open to other users")]
)
def test_something_else_in_the_place_of_the_key_is_exit_6_and_leaves_nothing(folder, refusal, key, says):
    place = folder / "city.store.key"
    place.write_text(f"trafficdp-key-1 {'0' * 64}\n" if key is None else key)
    place.chmod(0o600 if key is not None else 0o644)
    assert says in refusal(6, "init")
    assert names(folder) == ["city.store.key"]


def test_a_key_inside_the_store_is_refused(folder, refusal):
    (folder / "trafficdp.toml").write_text('store = "a.store"\nkey_file = "a.store/key"\n')
    assert "outside the store" in refusal(2, "init")
    (folder / "trafficdp.toml").write_text('key_file = "b.store/key"\n')
    assert "must not lie in the store" in refusal(2, "--store", "b.store", "init")
    assert names(folder) == ["trafficdp.toml"]


def test_a_store_where_a_file_is_leaves_no_configuration_behind(folder, refusal):
    (folder / "file").write_text("")
    assert "not a folder" in refusal(2, "--store", "file", "init")
    assert "Not a directory" in refusal(6, "--store", "file/store", "init")
    assert {"trafficdp.toml", "city.store"}.isdisjoint(names(folder))


def test_a_disk_that_is_full_or_read_only_leaves_no_half_made_store(folder, refusal, monkeypatch):
    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    for place in ("trafficdp.store.vault.os.replace", "trafficdp.ingest.vehicle_key.os.fsync"):
        with monkeypatch.context() as patched:
            patched.setattr(place, full)
            refusal(6, "init")
        assert not (folder / "trafficdp.toml").exists()
        assert not (folder / "city.store" / "vault.duckdb").exists()


def test_init_can_be_run_again_after_a_failure(folder, command, refusal, monkeypatch):
    def read_only(*_arguments, **_options):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr("trafficdp.store.vault.os.replace", read_only)
        assert "no permission to write" in refusal(6, "init")
    assert command("init").code == 0
    assert (folder / "city.store" / "vault.duckdb").is_file()


def test_a_filled_template_works(folder, command, feed):
    assert command("--quiet", "init").code == 0
    answers = {
        "CHOOSE the name of the city": "Small City",
        "CHOOSE who publishes the map": "Small City Transport",
        "CHOOSE an IANA time zone": "Europe/Vienna",
        '"CHOOSE a box or a GeoJSON file"': "{ bbox = [16.2, 48.1, 16.6, 48.3] }",
        '"CHOOSE the first and the last day"': '{ from = "2026-03-02", to = "2026-03-02" }',
        "CHOOSE add_or_remove_user, or replace_user_values for a fleet that runs by a public timetable": (
            "replace_user_values"
        ),
        '"CHOOSE a number, such as 8"': "8",
        '"CHOOSE a whole number from 0 to 15, such as 7"': "6",
        '"CHOOSE the largest speed that shall count, such as 30"': "20",
        "CHOOSE m/s, km/h or mph": "m/s",
        "CHOOSE a name, such as buses": "buses",
        "CHOOSE csv, parquet, gpkg, json, xml, gtfs_rt, gtfs_rt_csv, tides, mds, iudx, siri or nextbus": (
            "csv"
        ),
        "CHOOSE a pattern, such as *.csv.gz": "*.csv",
        '"CHOOSE the names of the columns"': (
            '{ vehicle = "bus", time = "at", latitude = "lat", longitude = "lng", speed = "v" }'
        ),
    }
    text = (folder / "trafficdp.toml").read_text()
    # of public counts it is none
    text = re.sub(r"(?m)^fleet = .*$", "", text)
    for question, answer in answers.items():
        assert question in text
        text = text.replace(question, answer)
    (folder / "trafficdp.toml").write_text(text)
    (folder / "day.csv").write_text("\n".join(["bus,at,lat,lng,v", *feed("2026-03-02"), ""]))
    assert command("ingest", "day.csv").code == 0
    # the template states no epsilon: it is asked for
    assert "[privacy] epsilon is missing" in command("plan").err
    assert command("release", "--yes", "--epsilon", "6").code == 0
    assert command("verify", "r0001").code == 0
    assert sorted(path.name for path in (folder / "city.store/releases/r0001").iterdir()) == [
        "cells.csv",
        "cells.parquet",
        "datapackage.json",
        "dataset.jsonld",
        "manifest.json",
        "map.geojson",
        "map.html",
        "mechanism.parquet",
    ]


def test_the_size_of_the_fleet_is_asked_for_on_a_terminal_and_never_guessed(folder, command, monkeypatch):
    assert command("--quiet", "init", "--fleet", 2500).code == 0
    text = (folder / "trafficdp.toml").read_text()
    assert tomllib.loads(text)["map"]["fleet"] == 2500
    assert text.replace("fleet = 2500\n", "") == re.sub(r"(?m)^fleet = .*\n", "", template())
    monkeypatch.setattr("trafficdp.cli.commands.init.is_interactive", lambda: True)
    for number, (typed, found) in enumerate((("many\n1200\n", 1200), ("\n", "CHOOSE"), ("0\n" * 3, None))):
        there = folder / str(number)
        there.mkdir()
        monkeypatch.chdir(there)
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        result = command("init")
        assert "How many vehicles are expected?" in result.err
        if found is None:
            assert result.code == 2
            assert "a whole number from 1 on" in result.err
            assert names(there) == []
        else:
            assert str(tomllib.loads((there / "trafficdp.toml").read_text())["map"]["fleet"]).startswith(
                str(found)
            )


IUDX = {
    "spatial_generalize": {
        "spatial_attribute": "location.coordinates",
        "h3_resolution": 8,
        "filter_event_occurences": 15,
        "filter_attribute": "license_plate",
    },
    "temporal_generalize": {"temporal_attribute": "seenAt", "timeslot_resolution": 60},
    "differential_privacy": {
        "dp_query": "mean",
        "dp_epsilon": 5,
        "dp_output_attribute": "speed",
        "global_max_value": 65,
    },
}


def test_a_configuration_of_the_iudx_pipeline_is_taken_over_where_it_means_the_same(folder, command):
    (folder / "pipeline.json").write_text(json.dumps(IUDX))
    result = command("--json", "init", "--iudx", "pipeline.json")
    assert (result.code, result.err) == (0, "")
    text = (folder / "trafficdp.toml").read_text()
    document = tomllib.loads(text)
    assert document["map"]["resolution"] == 8
    assert document["map"]["slot"] == "hour_of_day"
    assert document["map"]["speed_bound"] == 65
    assert document["map"]["statistics"] == ["mean"]
    (source,) = document["source"]
    assert source["format"] == "iudx"
    assert source["columns"] == {"vehicle": "license_plate", "time": "seenAt", "speed": "speed"}
    # budget, unit and relation are choices, whatever another tool was told
    for still_open in ("relation", "epsilon_per_vehicle", "speed_unit"):
        assert re.search(rf'(?m)^{still_open} = "CHOOSE', text)
    assert "epsilon" not in document["privacy"]
    messages = json.loads(result.out)["messages"]
    assert any("not composed" in message for message in messages)


def test_what_is_not_taken_over_is_said(folder, command):
    (folder / "pipeline.json").write_text(json.dumps({**IUDX, "spatial_attribute": "gps"}))
    said = " ".join(command("init", "--iudx", "pipeline.json").out.split())
    assert "spatial_attribute = gps is left out" in said
    assert "dp_epsilon = 5 is left out" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist"),
        ("{", "is not JSON"),
        ("[]", "is not an object"),
        ('{"h3_resolution": "7"}', "h3_resolution of the IUDX configuration is not a number"),
    ],
)
def test_a_bad_iudx_configuration_leaves_nothing_behind(folder, command, text, said):
    before = []
    if text is not None:
        (folder / "pipeline.json").write_text(text)
        before = ["pipeline.json"]
    result = command("init", "--iudx", "pipeline.json")
    assert result.code == 2
    assert said in " ".join(result.err.split())
    assert names(folder) == before


def test_an_iudx_configuration_never_overwrites_ours(folder, command):
    (folder / "pipeline.json").write_text(json.dumps(IUDX))
    (folder / "trafficdp.toml").write_text("# mine\n")
    for option in (("--iudx", "pipeline.json"), ("--fleet", 10)):
        result = command("init", *option)
        assert result.code == 2
        assert "there is a configuration here already" in " ".join(result.err.split())
    assert (folder / "trafficdp.toml").read_text() == "# mine\n"
