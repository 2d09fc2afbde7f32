"""The configuration of a city in whose streets the command line is tried, and of any other."""

import re

CONFIG = """\
store = "city.store"

[city]
name = "Small City"
publisher = "Small City Transport"
time_zone = "Europe/Vienna"
study_area = { bbox = [16.20, 48.10, 16.60, 48.30] }
period = { from = "2026-03-02", to = "2026-03-03" }

[privacy]
relation = "replace_user_values"
epsilon = 6

[budget]
epsilon_per_vehicle = @budget

[map]
slot = "whole_period"
speed_bound = 20
speed_unit = "m/s"
min_vehicles = 3
@map

@more
[[source]]
name = "buses"
format = "csv"
files = ["*.csv", "*.csv.gz"]
speed_unit = "m/s"
columns = { vehicle = "bus", time = "at", latitude = "lat", longitude = "lng", speed = "v" }
"""


def configuration(budget, map, more=""):
    """The text of `trafficdp.toml`: ``map`` are further lines of that table, ``more`` further tables."""
    return CONFIG.replace("@budget", str(budget)).replace("@map", map).replace("@more", more)


CITY = """\
[city]
name = "@name"
publisher = "City of @name"
time_zone = "@zone"
study_area = { bbox = @area }
period = { from = "@first", to = "@last" }

[privacy]
relation = "replace_user_values"

[budget]
epsilon_per_vehicle = 8

[map]
resolution = 7
speed_bound = 30
speed_unit = "m/s"

"""


def declaring(source, name, zone, area, first, last):
    """The text of `trafficdp.toml` of another city; ``source``: its tables ``[[source]]``."""
    given = {"name": name, "zone": zone, "area": area, "first": first, "last": last}
    return re.sub("@([a-z]+)", lambda found: str(given[found[1]]), CITY) + source
