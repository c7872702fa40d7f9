"""The measured figures: how they are kept, and that the page made of them is not stale."""

import re
from pathlib import Path

import msgspec
import pytest

from overrun.analysis.evidence.leading_indicators import Scored
from tests.benchmarks import analysis, dashboard, leading, referees_page, results, whatif
from tests.benchmarks.results import FOLDER, ROOT, Figure, measured, read, record
from tests.benchmarks.results_page import AREAS, MOST_ROWS, PAGE, page

OLD = "measured before commits were read back (fault fixed on 2026-11-26)"
SOURCES = ("analysis", "collector", "models", "dashboard")


def figure(what: str, value: float, **more: object) -> Figure:
    return msgspec.convert(
        {"what": what, "value": value, "date": "2026-11-01", "script": "make bench-x", **more},
        Figure,
    )


def test_the_page_is_made_from_the_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "stale: run `make benchmarks-page`"


def test_the_page_of_referees_is_made_from_the_results() -> None:
    made = referees_page.page()
    assert referees_page.PAGE.read_text(encoding="utf-8") == made, (
        "stale: run `make benchmarks-page`"
    )
    known = {area: [one.what for one in read(area)] for area in AREAS}
    for claims in referees_page.CLAIMS.values():
        for claim in claims:
            if known[claim.area]:
                assert any(what.startswith(claim.begins) for what in known[claim.area]), claim


@pytest.mark.parametrize("area", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_results_are_a_list_of_figures_with_a_date_and_a_script(area: str) -> None:
    figures = read(area)
    assert figures
    for one in figures:
        assert re.match(r"2\d{3}-\d\d-\d\d", one.date), one
        assert one.script, one
    assert len({one.what for one in figures}) == len(figures)


@pytest.mark.parametrize("area", ["ingest", "overload", "durability"])
def test_figures_from_before_the_commits_were_read_back_say_so(area: str) -> None:
    for one in read(area):
        assert one.date >= "2026-11-26" or one.note == OLD, one


def test_a_number_in_a_comment_is_found_in_the_results_it_names() -> None:
    named = {
        (path.relative_to(ROOT).as_posix(), area)
        for room in SOURCES
        for path in (ROOT / room).rglob("*.py")
        for area in re.findall(r"docs/results/(\w+)\.json", path.read_text(encoding="utf-8"))
    }
    kept = {(place, area) for area in AREAS for one in read(area) for place in one.cited_by}
    assert named == kept


def test_a_new_figure_replaces_the_old_one_and_keeps_what_no_run_knows(tmp_path: Path) -> None:
    old = figure("P99", 119, target="<= 250 ms", note="old", cited_by=["a.py"], page=False)
    record("ingest", [old, figure("disk", 92)], tmp_path)
    record("ingest", [measured("P99", 101, "ms", script="make bench-ingest")], tmp_path)
    new, other = read("ingest", tmp_path)
    assert (new.value, new.unit, new.target, new.cited_by) == (101, "ms", "<= 250 ms", ("a.py",))
    assert (new.page, new.note, new.date > old.date) == (False, "", True)
    assert other.value == 92


def test_two_figures_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="its own `what`"):
        results.write("ingest", [figure("P99", 1), figure("P99", 2)], tmp_path)


def test_an_area_without_a_section_is_refused(tmp_path: Path) -> None:
    record("unheard_of", [figure("x", 1)], tmp_path)
    with pytest.raises(ValueError, match="unheard_of"):
        page(tmp_path)


def test_figures_with_a_target_come_first_and_a_section_has_few(tmp_path: Path) -> None:
    wanted = figure("P99", 119, unit="ms", target="<= 250 ms", note="old", more={"gRPC": 1200})
    record("ingest", [*(figure(f"x{at}", at) for at in range(MOST_ROWS)), wanted], tmp_path)
    text = page(tmp_path)
    assert "| P99 (old) | 119 ms | <= 250 ms | 2026-11-01 |" in text
    assert len(re.findall(r"^\| (x\d|P99)", text, re.MULTILINE)) == MOST_ROWS
    assert f"All {MOST_ROWS + 1} figures: [ingest.json]" in text


def test_printed_tables_become_figures() -> None:
    one = analysis.figure("Report", "1,752 ms (CPU 2,241)", "one run")
    assert (one.value, one.unit, one.more) == (1752, "ms", {"CPU": 2241})
    rows = analysis.figure("Rollups", "114 ms (CPU 171) (2,985,780 rows)", "")
    assert (rows.value, rows.more) == (114, {"CPU": 171})
    lines = ["| e2e, all quantiles | 303 | 2.0 % | 7.7 % | 31 % | 96 % |"]
    [error] = whatif.figures(lines, ["errors", "500", "211"])
    assert (error.value, error.more) == (2.0, {"P90": 7.7, "inside": "96 %"})
    row = "| verdict | 0.53 s | 0.70 s | 1.12 s | 1.13 s | 378, 386 ms | 78, 85 ms (least 59) | 1,154 | 28 | 160 / 30 / 20 ms |"
    sentence, new, again = dashboard.figures({"verdict": row}, 20_000)
    assert (sentence.value, new.value, again.value, again.more["least"]) == (0.7, 386, 85, 59)


def test_alerts_that_never_came_give_no_precision() -> None:
    good = Scored(precision=0.75, recall=0.5, lead_s_median=80.0, events=10, alerts=4)
    never = Scored(precision=None, recall=0.0, lead_s_median=None, events=10)
    found = {leading.LEARNED: [good, good]} | {name: [never] for name in leading.FIXED}
    [one] = leading.figures(found, "faults", "x")
    assert (one.what, one.value) == ("Precision of the learned alert on later data: faults", 0.75)
    assert one.more == {"recall": 0.5}
