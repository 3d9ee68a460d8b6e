"""A line chart: every line and bound is there by name, within its axes, and what cannot be drawn is refused."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from tokenyard.errors import ConfigError
from tokenyard.questions import line_chart

SVG = "{http://www.w3.org/2000/svg}"


def test_lines_and_bounds_are_drawn_by_name_and_escaped() -> None:
    text = line_chart("a < b", "x", "y", {"one": [(1, 2), (2, 4)], "two": [(1, 3)]}, bounds={"limit": 8})
    root = ET.fromstring(text)
    said = [element.text for element in root.iter(f"{SVG}text")]
    assert {"a < b", "one", "two", "limit"} <= set(said)
    assert len(list(root.iter(f"{SVG}polyline"))) == 3
    dots = [circle for circle in root.iter(f"{SVG}circle") if circle.find(f"{SVG}title") is not None]
    assert [re.sub("&.*;", "", str(dot[0].text)) for dot in dots] == ["one: 1, 2", "one: 2, 4", "two: 1, 3"]
    heights = [float(dot.attrib["cy"]) for dot in dots]
    assert heights[1] < heights[2] < heights[0], "higher values stand higher"


@pytest.mark.parametrize("lines", [{}, {"none": []}, {"flat": [(1, 0)]}, {"at once": [(0, 1)]}])
def test_what_has_no_size_is_refused(lines: dict[str, list[tuple[float, float]]]) -> None:
    with pytest.raises(ConfigError, match=r"lines = .*: give at least one point"):
        line_chart("t", "x", "y", lines)
