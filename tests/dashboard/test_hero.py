"""The picture on the Verdict page: widths and heights are the figures, every text is harmless, nothing is drawn of nothing."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from overrun.analysis.numbers.comparison.traffic_changes import Changed
from overrun.analysis.numbers.over_time.stage_course import StageCourse, StageSplit, StageStep
from overrun.analysis.words.finding import Finding, Predicted
from overrun.dashboard import hero
from overrun.dashboard.heatmap_box import Box

T0 = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
HOSTILE = '"><img src=x onerror=window.pwned=1>'


def split(*ms: float, n: int = 100) -> StageSplit:
    return StageSplit(n=n, total_ms=sum(ms), ms=list(ms))


def course(**more: object) -> StageCourse:
    return StageCourse(
        **{
            "metric": "ttft",
            "path": "ttft",
            "percentile": 95.0,
            "limit_ms": 800.0,
            "onset": T0 + timedelta(seconds=30),
            "start": T0,
            "end": T0 + timedelta(seconds=60),
            "step_s": 15,
            "n": 400,
            "stages": ["queue", "prefill"],
            "steps": [
                StageStep(start=T0 + timedelta(seconds=15 * i), n=100, split=one)
                for i, one in enumerate(
                    [split(10.0, 190.0), None, split(100.0, 700.0), split(200.0, 800.0)]
                )
            ],
            "typical": split(10.0, 190.0),
            "slow": split(200.0, 800.0),
            "before_onset": True,
            **more,
        }
    )


def predicted(**more: object) -> Predicted:
    return Predicted(
        **{
            "metric": "ttft",
            "quantile": 0.95,
            "before": 1000.0,
            "after": 250.0,
            "interval": (200.0, 400.0),
            "touched_ratio": 1.0,
            "cost": {},
            **more,
        }
    )


def drawn(**more: object) -> str:
    given = {
        "course": course(),
        "fix": predicted(),
        "fix_title": "Restore the cache",
        "findings": (),
        "changes": (),
        "onset": course().onset,
    }
    return hero.draw(hero.Hero(**{**given, **more}))


def test_strips_share_one_scale() -> None:
    body = hero.strips(hero.Hero(course(), predicted(), "Restore", (), ()))
    widths = [float(width) for width in re.findall(r'href="[^"]+" style="width:([\d.]+)%', body)]
    assert widths == pytest.approx([1.0, 19.0, 20.0, 80.0, 25.0])
    assert body.count('class="ov-tick" style="left:80.00%"') == 3
    assert 'ov-whisker" style="left:20.00%;width:20.00%"' in body
    assert [re.sub("<[^>]+>", "", end) for end in re.findall(r'ov-end">(.*?)</span>', body)] == [
        "200 ms",
        "▲ 1.00 s",
        "250 ms",
    ]


def test_columns_are_as_tall_as_their_stages_and_the_onset_stands_at_its_time() -> None:
    body = drawn()
    heights = [float(height) for height in re.findall(r'style="height:([\d.]+)%', body)]
    top = 1.08 * 1000.0
    assert heights == pytest.approx(
        [100.0 * ms / top for ms in (190.0, 10.0, 700.0, 100.0, 800.0, 200.0)], abs=0.01
    )
    assert 'class="ov-onset" style="left:50.00%"' in body
    assert "too few for P95" in body
    assert "first 200 ms, last 1.00 s, highest 1.00 s, limit 800 ms, onset 10:00:30 UTC" in body


def test_a_step_leads_to_its_requests_and_an_empty_window_to_its_data() -> None:
    body = drawn()
    boxes = [Box.read(text) for text in re.findall(r'data-box="([^"]+)"', body)]
    assert [box.start for box in boxes if box] == [
        step.start for step in course().steps if step.split
    ]
    assert "Zoom to the data" not in body
    steps = [
        *course().steps,
        *(StageStep(start=T0 + timedelta(seconds=15 * i), n=0, split=None) for i in range(4, 12)),
    ]
    body = drawn(course=course(steps=steps))
    assert (
        'data-from="2026-11-20T10:00:00Z" data-to="2026-11-20T10:01:00Z">Zoom to the data' in body
    )


def test_without_a_fix_or_a_limit_there_are_two_strips_and_no_line() -> None:
    body = drawn(fix=None, onset=None, course=course(limit_ms=None, onset=None, before_onset=False))
    assert "after the fix" not in body
    assert "ov-limit" not in body
    assert "ov-tick" not in body
    assert "ov-over" not in body
    assert "<small>P50</small>" in body
    assert "since the onset" not in body


def test_a_stage_with_a_finding_leads_to_it_and_others_to_the_budget() -> None:
    finding = Finding(
        rule="prefix_cache_lost",
        stage="prefill",
        service=None,
        severity="critical",
        confidence=0.9,
        headline=f"Only 63 % hits. {HOSTILE}",
        evidence={},
        exemplars=[],
        fix=None,
    )
    body = drawn(findings=(finding,))
    assert 'ov-s-prefill" href="/findings"' in body
    assert 'ov-s-queue" href="/budget"' in body.replace(" ov-thin", "").replace(" ov-late", "")
    assert "prefill 800 ms, +610 ms against a typical request&#10;Only 63 % hits" in body


def test_what_changed_is_marked_and_escaped() -> None:
    change = Changed(what="version", before=[], after=HOSTILE, at=T0 + timedelta(seconds=57))
    body = drawn(changes=(change,))
    assert "ov-change ov-left" in body
    assert "<img" not in body
    late = Changed(what="version", before=[], after="v2", at=T0 + timedelta(hours=1))
    assert "ov-change" not in drawn(changes=(late,))


@pytest.mark.parametrize("name", ["slow", "typical"])
def test_nothing_is_drawn_where_a_side_is_unknown(name: str) -> None:
    assert drawn(course=course(**{name: None})) == ""
