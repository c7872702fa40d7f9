"""HTML helpers: what comes from telemetry is text, whatever it holds; small pictures say in words what they show."""

import base64
import re

import pytest

from overrun.dashboard import ui
from overrun.dashboard.theme import DARK, LIGHT

HOSTILE = [
    "<script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=1">',
    "' onmouseover='alert(1)",
    "[x](javascript:alert(1)) **b**",
    "\x1b[31mred\x1b[0m",
    "a\u202eb",
    "a\nb\x00c",
    "<svg/onload=alert(1)>",
    "&lt;b&gt;",
    "x" * 10_000,
]


@pytest.mark.parametrize("value", HOSTILE)
def test_text_has_no_markup_and_no_control_characters(value: str) -> None:
    shown = ui.text(value)
    assert not set(shown) & set("<>\"'\x1b\x00\n\u202e")
    assert len(shown) < 600


def test_what_is_written_from_right_to_left_leaves_the_numbers_beside_it_alone() -> None:
    assert ui.text("/שאלה") + " 65, 53.3 %" == "/\u2068שאלה\u2069 65, 53.3 %"
    assert ui.sentence("model خدمة الدردشة takes 3 s") == "model \u2068خدمة الدردشة\u2069 takes 3 s"
    assert ui.text("\u2067a\u2066b\u2069") == "ab"  # nobody else's isolates


def test_nothing_is_text_too() -> None:
    assert ui.text(None) == "unknown"
    assert ui.text("") == "unnamed"


def test_a_strip_is_as_wide_as_its_share_and_says_its_parts() -> None:
    made = ui.strip("slow", {"decode": 300.0, "queue": 100.0, "tool": 0.0}, 400.0, 800.0, LIGHT)
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", made)]
    assert widths == [12.5, 37.5]  # in the order in which a request passes them
    assert 'aria-label="slow: queue 100 ms, decode 300 ms"' in made
    assert "400 ms" in made
    assert "tool" not in made


def test_a_strip_of_nothing() -> None:
    assert "ov-bar" in ui.strip("slow", {}, 0.0, 0.0, DARK)


def svg(made: str) -> str:
    found = re.search(r"base64,([^\"]+)", made)
    assert found
    return base64.b64decode(found[1]).decode()


def test_a_line_has_gaps_where_there_is_no_value() -> None:
    made = svg(ui.spark([1.0, 2.0, None, 3.0, 4.0, None, 5.0], LIGHT, alt="x", limit=2.0))
    assert made.count("<polyline") == 2
    assert made.count("<circle") == 1
    assert "stroke-dasharray" in made


def test_a_line_without_values_is_a_word() -> None:
    assert "<img" not in ui.spark([None, None], LIGHT, alt="x")
    assert "<img" not in ui.spark([], LIGHT, alt="x")


def test_flat_and_single_lines_stay_inside_the_picture() -> None:
    for values in ([0.0, 0.0], [7.0], [5.0, 5.0, 5.0]):
        made = svg(ui.spark(values, LIGHT, alt="x", limit=1.0))
        assert all(-0.1 <= float(y) <= 36.1 for y in re.findall(r"[\d.]+,(-?[\d.]+)", made))


def test_the_words_of_a_picture_are_escaped() -> None:
    assert "<script>" not in ui.spark([1.0, 2.0], LIGHT, alt='"><script>')


def test_a_box_is_red_only_when_it_is_told() -> None:
    assert "ov-bad" not in ui.box("fine", ["x"])
    assert "ov-bad" in ui.box("over", [], bad=True)


def test_facts_without_an_answer_are_left_out() -> None:
    assert ui.facts([("Since", ""), ("Owner", "app")]).count("<dt>") == 1
    assert ui.facts([("Since", "")]) == ""


def test_a_wide_table_tells_each_cell_its_column_for_phones() -> None:
    wide, narrow = (ui.table(['a "b"', *"cde"[:more]], [["1", *"234"[:more]]]) for more in (3, 2))
    assert re.findall(r'<td data-of="([^"]*)">', wide) == ["a &quot;b&quot;", "c", "d", "e"]
    assert "ov-cards" in wide
    assert "ov-cards" not in narrow


def test_words_of_the_api_become_a_sentence() -> None:
    assert ui.stated("no <b> was seen") == "No &lt;b&gt; was seen."
    assert ui.stated(None) == ui.stated("") == ""


def test_no_line_ends_between_a_number_and_its_unit() -> None:
    assert ui.whole("<b>915 ms</b>, 99.6 % of 3 requests in 5 min, 10:04 UTC") == (
        "<b>915\u00a0ms</b>, 99.6\u00a0% of 3 requests in 5\u00a0min, 10:04\u00a0UTC"
    )
    assert ui.whole("3 services, 2 msgs, 1 height") == "3 services, 2 msgs, 1 height"
