"""Make the public map of the simulated city of data/sample: streets, a river, parks and places, as GeoJSON.

The streets run where the buses of make_sample drive, through the middle of every cell in the direction of
its road; lanes cross them. Nothing is taken from records, and nothing of it exists: in a real city these
files come from a public map. Arithmetic is on integers (millionths of a degree), so the same files come out
everywhere.

    python data/make_streets.py [OUT_DIR]

writes ``streets.geojson``, ``river.geojson``, ``parks.geojson`` and ``places.geojson``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import h3
from make_sample import PLACES, ROAD, choose, degrees

Position = tuple[int, int]
"""Longitude and latitude in millionths of a degree."""

STREETS = {
    "Station Road": ("old city", "station", "interchange"),
    "Ring Road North": ("interchange", "ring north-east", "ring north"),
    "Ring Road East": ("interchange", "ring east", "ring south-east"),
    "Ring Road South": ("ring south-east", "ring south-south-east", "ring south"),
    "Market Street": ("old city", "market", "ring north"),
    "Temple Street": ("old city", "south quarter", "ring south-south-east"),
    "Weavers Street": ("old city", "east quarter", "ring south-east"),
    "Airport Road": ("old city", "west quarter", "airport road", "airport"),
    "Mill Road": ("ring east", "east village"),
    "Orchard Road": ("ring north", "north-west village"),
}
LANES = (
    "Well",
    "School",
    "Mango",
    "Potters",
    "Dyers",
    "Bridge",
    "Garden",
    "Hill",
    "Mosque",
    "Church",
    "Tank",
)
"""Each place has three lanes, by these names in turn."""
NAMES = {
    "old city": "Old City", "station": "Station", "market": "Market", "south quarter": "South Quarter",
    "east quarter": "East Quarter", "west quarter": "West Quarter", "interchange": "Interchange",
    "airport": "Airport", "east village": "East Village", "north-west village": "North-West Village",
}  # fmt: skip
SOUTH_OF = 21_000
"""How far south of a cell's middle the river runs, in millionths of a degree."""


def middle(name: str) -> Position:
    """Return the middle of a place's cell."""
    latitude, longitude = h3.cell_to_latlng(PLACES[name].cell)
    return round(longitude * 1_000_000), round(latitude * 1_000_000)


def beside(at: Position, along: int, across: int, east: int, north: int) -> Position:
    """Return the point so many cm along a road of that direction (1/1000), and across it, from ``at``."""
    x, y = (along * east - across * north) // 1000, (along * north + across * east) // 1000
    return at[0] + x * 100_000 // 1_036_739, at[1] + y * 100_000 // 1_111_951


def street(names: tuple[str, ...]) -> list[Position]:
    """Return a street through the places: at each along its road, from there straight to the next."""
    line: list[Position] = []
    middles = [middle(name) for name in names]
    for number, name in enumerate(names):
        before, after = middles[max(number - 1, 0)], middles[min(number + 1, len(names) - 1)]
        place = PLACES[name]
        towards = (after[0] - before[0]) * place.east + (after[1] - before[1]) * place.north
        way = 1 if towards >= 0 else -1
        ends = [beside(middles[number], way * end * ROAD // 2, 0, place.east, place.north) for end in (-1, 1)]
        line += ends
    return line


def lanes(number: int, name: str) -> list[tuple[str, list[Position]]]:
    """Return three lanes that cross the road of a place."""
    place, at, found = PLACES[name], middle(name), []
    for lane in range(3):
        along = (lane - 1) * ROAD // 3 + choose(f"lane {name} {lane}", ROAD // 8)
        reach = 40_000 + choose(f"reach {name} {lane}", 50_000)
        bend = choose(f"bend {name} {lane}", 12_000)
        line = [
            beside(at, along + shift, across, place.east, place.north)
            for across, shift in ((-reach, -bend), (0, 0), (reach, bend))
        ]
        found.append((f"{LANES[(3 * number + lane) % len(LANES)]} Lane", line))
    return found


def box(name: str, along: int, across: int, half: int) -> list[Position]:
    """Return a closed square beside the road of a place; lengths in cm."""
    place, at = PLACES[name], middle(name)
    corners = ((-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1))
    return [
        beside(at, along + x * half, across + y * half * 3 // 4, place.east, place.north) for x, y in corners
    ]


def river() -> list[Position]:
    """Return the river, from the north-east to the south-west, below the old city."""
    names = ("east village", "ring east", "east quarter", "south quarter", "west quarter", "airport")
    line = [(x, y - SOUTH_OF // 3 - choose(f"river {number}", SOUTH_OF // 2)) for number, (x, y) in
            enumerate(map(middle, names))]  # fmt: skip
    return [(72_950_000, line[0][1] + 12_000), *line, (72_700_000, line[-1][1] - 9_000)]


def geojson(kind: str, shapes: list[tuple[str, list[Position]]]) -> str:
    """Return a FeatureCollection of named lines, polygons of one ring, or points, one feature a line."""
    lines = []
    for name, positions in shapes:
        numbers = [f"[{degrees(x)},{degrees(y)}]" for x, y in positions]
        text = {
            "Point": numbers[0],
            "LineString": f"[{','.join(numbers)}]",
            "Polygon": f"[[{','.join(numbers)}]]",
        }
        geometry = f'{{"type":"{kind}","coordinates":{text[kind]}}}'
        lines.append(f'{{"type":"Feature","properties":{{"name":"{name}"}},"geometry":{geometry}}}')
    return '{"type":"FeatureCollection","features":[\n' + ",\n".join(lines) + "\n]}\n"


def main(out: Path) -> None:
    """Write the four files into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    streets = [(name, street(places)) for name, places in STREETS.items()]
    streets += [lane for number, name in enumerate(PLACES) for lane in lanes(number, name)]
    parks = [("Castle Garden", box("old city", 30_000, 60_000, 32_000)),
             ("Lake Park", box("south quarter", -40_000, -55_000, 40_000)),
             ("Station Green", box("station", 20_000, -60_000, 28_000))]  # fmt: skip
    files = {
        "streets": geojson("LineString", streets),
        "river": geojson("LineString", [("Slow River", river())]),
        "parks": geojson("Polygon", parks),
        "places": geojson("Point", [(NAMES[name], [middle(name)]) for name in NAMES]),
    }
    for name, text in files.items():
        (out / f"{name}.geojson").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "sample")
