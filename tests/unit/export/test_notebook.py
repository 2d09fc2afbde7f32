"""What a notebook shows of a release: in short, as a card, as a plot and as the page itself."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.export import notebook
from trafficdp.export.files.classes import COLOURS, shown_numbers
from trafficdp.model import Statistic
from trafficdp.privacy.release import published_frame

mpl.use("agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def drawn_with(axes, hatch):
    """The hexagons drawn with ``hatch``, or None for those without one."""
    return sum(len(each.get_paths()) for each in axes.collections if each.get_hatch() == hatch)


@pytest.mark.slow
def test_any_release_has_a_line_a_card_and_a_plot(any_release, city):
    line, card = notebook.release_in_words(any_release), notebook.release_card(any_release)
    assert len(line) < 200
    assert any_release.id in line
    assert any_release.disclosure.guarantee.in_short in line
    assert len(card) < 200_000
    assert any_release.disclosure.coverage.place in card
    assert "Protected: " in card
    assert "<script" not in card
    # a plot of each statistic of one release, and of one statistic of the others
    for statistic in [*any_release.estimates][: None if any_release is city else 1]:
        assert notebook.plot(any_release, statistic.value, None, "value", None).get_title()


def test_a_card_says_what_the_table_says(city):
    card = notebook.release_card(city)
    for place in city.place[:10]:
        assert str(place) in card
    assert "<svg" in card
    assert "withheld" in card
    assert ("more: to_frame() has all." in card) == (city.bins > 10)


def test_a_plot_paints_every_hexagon_in_its_class_and_hatches_the_withheld(city):
    axes = notebook.plot(city, "mean", None, "value", None)
    status = city.estimates[Statistic.MEAN].status
    assert drawn_with(axes, "//") == np.count_nonzero(status == "withheld") > 0
    assert drawn_with(axes, "xx") == np.count_nonzero(status == "uninformative")
    coloured = max(
        axes.collections, key=lambda each: 0 if each.get_array() is None else len(each.get_array())
    )
    values = shown_numbers(published_frame(city), Statistic.MEAN, city.request.display_unit)[0]
    released = values[np.isin(status, ["released", "constant"])]
    assert np.array_equal(np.sort(coloured.get_array()), np.sort(released))
    assert coloured.cmap.colors == list(COLOURS)


def test_a_variance_is_plotted_as_a_standard_deviation(city):
    axes = notebook.plot(city, "variance", None, "uncertainty", None)
    _, low, high = shown_numbers(published_frame(city), Statistic.VARIANCE, city.request.display_unit)
    painted = [each.get_array() for each in axes.collections if each.get_array() is not None]
    assert np.allclose(np.sort(np.concatenate(painted)), np.sort((high - low)[~np.isnan(high)]))


@pytest.mark.slow
def test_a_slot_is_chosen_by_its_label(rush_hours):
    labels = [facts.label for facts in rush_hours.slots.values()]
    titles = {notebook.plot(rush_hours, "mean", label, "value", None).get_title() for label in labels}
    assert len(titles) == len(labels) > 1
    assert notebook.plot(rush_hours, "mean", None, "value", None).get_title() in titles
    with pytest.raises(UsageError, match="slot is unknown"):
        notebook.plot(rush_hours, "mean", "noon", "value", None)


@pytest.mark.slow
def test_streets_are_drawn_on_given_axes(surrounded):
    axes = plt.subplots()[1]
    assert notebook.plot(surrounded, "mean", None, "value", axes) is axes
    assert any(type(each).__name__ == "LineCollection" for each in axes.collections)


def test_what_cannot_be_plotted_is_told(city):
    with pytest.raises(UsageError, match="expected one of mean, variance"):
        notebook.plot(city, "median", None, "value", None)
    with pytest.raises(UsageError, match="expected one of uncertainty, value"):
        notebook.plot(city, "mean", None, "error", None)


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
def test_the_page_runs_inside_a_notebook(city, chromium, tmp_path):
    shown = notebook.explore(city, 500)
    assert len(repr(shown)) < 100
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8>{shown._repr_html_()}", encoding="utf-8")
    page, complaints = chromium.new_page(), []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(path.as_uri())
    inside = page.frame_locator("iframe")
    inside.locator("html[data-drawn]").wait_for()
    inside.locator("#search").fill(str(city.place[0]))
    inside.locator("#search").press("Enter")
    assert inside.locator("#card h2").inner_text() == str(city.place[0])
    assert complaints == []
    page.close()
