from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from labelsieve.report.html import Line, heat_map, line_chart, stacked_bars
from labelsieve.report.training_sections import curves

HOSTILE = '"><img src=x onerror=alert(1)>'


def parsed(svg):
    return ElementTree.fromstring(svg)


def cells(svg):
    """{(row, column): (style class, text)} in drawing order."""
    groups = parsed(svg).findall("g")
    n = int(len(groups) ** 0.5)
    return {
        divmod(k, n): (g.find("rect").get("class"), g.find("text").text if g.find("text") is not None else "")
        for k, g in enumerate(groups)
    }


def test_a_heat_map_uses_different_colours_for_right_and_wrong_labels():
    found = cells(heat_map(["a", "b"], np.array([[0.7, 0.3], [0.0, 1.0]]), title="T", description="D"))
    assert found[0, 0] == ("cell d7", "70")
    assert found[0, 1] == ("cell h10", "30")  # the largest mistake
    assert found[1, 0] == ("cell h0", "")
    assert found[1, 1] == ("cell d10", "100")


def test_charts_have_titles_and_are_well_formed_with_hostile_names():
    matrix = np.eye(3)
    for svg in (
        heat_map([HOSTILE, "</svg>", "&amp;"], matrix, title=HOSTILE, description="D"),
        stacked_bars([HOSTILE, "b"], [[1, 2, 3], [0, 0, 0]], ("selected", "candidate", "removed"), title="V"),
        line_chart([Line(HOSTILE, [1, 2, 3], [3, 2, 1])], title="loss", ident="c"),
    ):
        root = parsed(svg)
        assert root.get("role") == "img"
        named = {node.get("id") for node in root if node.tag in ("title", "desc")}
        assert set(root.get("aria-labelledby").split()) == named
        assert "<img" not in svg


def test_bar_lengths_are_proportional_to_their_parts():
    root = parsed(stacked_bars(["a"], [[30, 10, 0]], ("selected", "candidate", "removed"), title="V"))
    first, second = root.findall("rect")
    assert float(first.get("width")) + 1 == pytest.approx(3 * (float(second.get("width")) + 1), rel=0.01)


@pytest.mark.parametrize("name", ["wrong_amount_of_cash", "MMMMMMMM", "猫と犬と鳥と魚"])
def test_names_fit_into_their_column(name):
    """Wide letters get more room than narrow ones, at least as much as the font draws."""
    least = {"wrong_amount_of_cash": 7.0, "MMMMMMMM": 10.8, "猫と犬と鳥と魚": 12.5}[name] * len(name)
    bars = parsed(stacked_bars([name], [[3, 0, 0]], ("selected", "candidate", "removed"), title="V"))
    heat = parsed(heat_map([name, "b"], np.eye(2), title="T", description="D"))
    assert float(bars.find("text").get("x")) >= least
    assert float(heat.find("text").get("x")) >= least + 20  # the name of the axis is on the left


def test_a_rising_line_is_drawn_upwards():
    root = parsed(line_chart([Line("x", [1, 11], [0.0, 1.0])], title="t", ident="c"))
    (x0, y0), (x1, y1) = (tuple(map(float, p.split(","))) for p in root.find("polyline").get("points").split())
    assert x0 < x1 and y0 > y1  # SVG counts downwards


@pytest.mark.parametrize("y", [[5.0, 5.0], [1e-9, 2e-9], [float("nan"), 1.0], [-3.0, 4e6]])
def test_unusual_numbers_are_drawn(y):
    parsed(line_chart([Line("x", [1, 2], y)], title="t", ident="c"))


def test_long_curves_are_thinned_and_keep_their_end():
    root = parsed(
        line_chart([Line("x", list(range(100_000)), [float(i) for i in range(100_000)])], title="t", ident="c")
    )
    points = root.find("polyline").get("points").split()
    assert len(points) <= 402 and float(points[-1].split(",")[0]) == 446  # the right edge


def test_curves_by_quantity_and_training():
    history = [
        {"training": "first", "epoch": 1, "loss": [2.0, 1.9], "accuracy_given": [0.5], "learning_rate": 0.1},
        {"training": "first", "epoch": 2, "loss": [1.0, 0.9], "accuracy_given": [0.6], "learning_rate": 0.1},
        {"stage": "select", "iteration": 1, "selected": 10},
        {"training": "second", "epoch": 1, "loss": None},
    ]
    found = curves(history)
    assert list(found) == ["loss", "accuracy_given"]
    assert [(line.name, list(line.y)) for line in found["loss"]] == [
        ("first (1)", [2.0, 1.0]),
        ("first (2)", [1.9, 0.9]),
    ]
    assert [(line.name, list(line.x)) for line in found["accuracy_given"]] == [("first", [1, 2])]
    assert curves([]) == {}
