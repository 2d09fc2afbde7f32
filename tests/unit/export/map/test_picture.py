from __future__ import annotations

import re

import numpy as np
import pytest
import shapely

from trafficdp.export.files.classes import ABSENT, COLOURS, HATCHED, PLAIN, UNINFORMATIVE, WITHHELD
from trafficdp.export.files.tables import unique_polygons
from trafficdp.export.map.drawing import (
    FELL,
    FILLS,
    ROSE,
    UNSURE,
    Drawing,
    centres_of,
    map_picture,
    surroundings_of,
    swatch,
)
from trafficdp.export.report.maps import ReportMaps
from trafficdp.export.report.report import report_html
from trafficdp.model import ContextKind, ContextLayer

LOOKS = [*PLAIN, *HATCHED, WITHHELD, UNINFORMATIVE, ABSENT, FELL, ROSE, UNSURE]


def drawn(release, letters, surroundings=None, **options):
    polygons, _ = unique_polygons(release)
    drawing = Drawing.of(polygons)
    centres = centres_of(drawing, polygons)
    return map_picture(
        drawing,
        drawing.paths(polygons),
        centres,
        letters,
        outline="M0 0z",
        surroundings=surroundings,
        **options,
    )


def test_every_look_is_a_letter_of_its_own():
    assert len(set(LOOKS)) == len(LOOKS)


def test_cells_of_one_look_are_one_path_and_every_cell_is_drawn_once(city):
    letters = np.resize(np.array(LOOKS), len(np.unique(city.cell)))
    picture = drawn(city, letters)
    assert len(picture.areas) == len(set(letters))
    assert sum(shape.path.count("M") for shape in picture.areas) == len(letters)


@pytest.mark.parametrize("look", [*HATCHED, WITHHELD, UNINFORMATIVE, FELL, ROSE])
def test_what_colour_says_a_sign_says_too(look):
    assert len(swatch(look).signs) == 1


def test_hatched_and_plain_differ_by_their_lines_alone():
    for plain, hatched in zip(PLAIN, HATCHED, strict=True):
        assert FILLS[plain] == FILLS[hatched]
        assert swatch(plain).signs == ()
        assert swatch(hatched).signs[0].stroke in ("#ffffff", "#000000")
    assert [FILLS[letter] for letter in PLAIN] == list(COLOURS)


def test_arrows_point_up_for_faster_and_down_for_slower():
    up, down = (
        re.match(r"M\S+ (\S+?)h\S+?l\S+ (\S+?)z", swatch(each).signs[0].path) for each in (ROSE, FELL)
    )
    assert float(up[2]) < 0 < float(down[2])


def test_signs_stay_inside_the_sample():
    for look in LOOKS:
        for shape in swatch(look).signs:
            first = [tuple(map(float, each)) for each in re.findall(r"M(\S+?) (\S+?)[lhv]", shape.path)]
            assert all(0 <= x <= 60 and 0 <= y <= 36 for x, y in first)


def test_badges_stand_on_their_cells_and_small_maps_have_no_bar(city):
    letters = np.full(len(np.unique(city.cell)), "3")
    picture = drawn(city, letters, badges=[(4, "A", False)])
    (badge,) = picture.badges
    polygons, _ = unique_polygons(city)
    centres = centres_of(Drawing.of(polygons), polygons)
    assert (badge.x, badge.y, badge.text) == (centres.x[4], centres.y[4], "A")
    assert picture.bar is None
    assert picture.width / 28 <= picture.badge_size <= picture.width / 16


def test_streets_lie_over_cells_water_under_them_and_names_beside_their_middles(surrounded):
    maps = ReportMaps.of(surrounded)
    around = maps.surroundings
    assert [each.stroke for each in around.lines] == ["#262626", "#0b4f9e", "#2f6b2f"]
    street, _, park = around.lines
    across = maps.drawing.to_drawing_units(np.array([[-97.9, 30.27], [-97.6, 30.27]]))
    (left, top), (right, bottom) = np.rint(across).astype(int).tolist()
    assert street.path == f"M{left} {top}l{right - left} {bottom - top}"
    # a park is an area, whose edge is closed; a river that is a line has no area
    assert park.path.count("l") == 4
    assert len(around.areas) == 1
    assert [each.text for each in around.names] == ["Harbour", "Hill End"]
    assert around.sources == "Survey of nowhere (public domain)"


def test_the_report_shows_streets_and_who_made_them_and_small_maps_have_none(surrounded, rush_hours):
    page = report_html(surrounded).decode()
    assert 'stroke="#262626"' in page
    assert "Map: Survey of nowhere (public domain)" in page
    assert ">Harbour</text>" in page
    assert 'class="sources"' not in report_html(rush_hours).decode()


def test_of_names_that_overlap_the_first_is_written_and_none_beyond_the_edge(surrounded):
    drawing = ReportMaps.of(surrounded).drawing
    middle = shapely.Point(-97.74, 30.27)
    names = ("First", "Second", "Far away")
    shapes = (middle, middle, shapely.Point(-90.0, 30.0))
    places = ContextLayer(ContextKind.PLACE, "a.gpkg", "0" * 64, "nobody", names, shapes)
    assert [each.text for each in surroundings_of(drawing, [places], 0.0).names] == ["First"]
