from __future__ import annotations

import re

import numpy as np
import pytest

from trafficdp.export.files.classes import ABSENT, COLOURS, HATCHED, PLAIN, UNINFORMATIVE, WITHHELD
from trafficdp.export.files.tables import unique_polygons
from trafficdp.export.map.drawing import FELL, ROSE, UNSURE, Drawing, centres_of, draw, fill_of, swatch

LOOKS = [*PLAIN, *HATCHED, WITHHELD, UNINFORMATIVE, ABSENT, FELL, ROSE, UNSURE]


def drawn(release, letters, **options):
    polygons, _ = unique_polygons(release)
    drawing = Drawing.of(polygons)
    centres = centres_of(drawing, polygons)
    return draw(drawing, drawing.paths(polygons), centres, letters, outline="M0 0z", **options)


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
        assert fill_of(plain) == fill_of(hatched)
        assert swatch(plain).signs == ()
        assert swatch(hatched).signs[0].stroke in ("#ffffff", "#000000")
    assert [fill_of(letter) for letter in PLAIN] == list(COLOURS)


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
    picture = drawn(city, letters, badges=[(4, "A", False)], bar=False)
    (badge,) = picture.badges
    polygons, _ = unique_polygons(city)
    centres = centres_of(Drawing.of(polygons), polygons)
    assert (badge.x, badge.y, badge.text) == (centres.x[4], centres.y[4], "A")
    assert picture.bar is None
    assert picture.width / 28 <= picture.badge_size <= picture.width / 16
