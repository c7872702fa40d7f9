"""Every page and state without a browser: real page code against a small API server."""

import html
import io
import re
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from overrun.analysis.diagnosis.sampled_causes import seek
from overrun.analysis.evidence.leading_indicators import Indicator
from overrun.analysis.front import report as reports
from overrun.analysis.numbers.quality.doctor import said
from overrun.analysis.numbers.quality.targets import Target
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import parse_slo
from overrun.analysis.words.times import rfc3339
from overrun.collector.config import Settings
from overrun.dashboard import data, empty_states, first_paint, nav
from overrun.dashboard.charts_compare import BEYOND
from overrun.dashboard.state import Filters
from overrun.dashboard.theme import say_age, say_count, say_ms
from overrun.dashboard.views import engine, findings, health
from overrun.models.artifact import (
    CONFORMAL,
    GOLDEN,
    HISTORY,
    QUANTILES,
    load_artifact,
    model_file,
    write_artifact,
)
from tests.analysis.builders import (
    T0,
    at,
    gauge,
    insert,
    insert_spans,
    requests,
    spans_of,
    store,
    vllm_gauges,
    vllm_spans,
)
from tests.analysis.numbers.quality.test_checks import histogram
from tests.dashboard.fake_api import GONE, FakeApi, fake_api

SLO = "ttft:1000 e2el:5000"
WINDOW = {"from": rfc3339(T0), "to": rfc3339(T0 + timedelta(seconds=150)), "slo": SLO}
HOSTILE = '"><img src=x onerror=window.pwned=1><script>window.pwned=1</script>\x1b[31m'
EVERY = pytest.mark.parametrize("page", [place.name for place in nav.PLACES])
OF_REQUESTS = pytest.mark.parametrize(
    "page", [place.name for place in nav.PLACES if place.name != "length"]
)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:streamlit.*")


def script(name: str) -> None:
    """What app.py does, for one page."""
    from importlib import import_module

    import streamlit

    from overrun.dashboard import data, nav, state, ui

    streamlit.navigation(list(nav.pages().values()), position="hidden")
    with ui.errors_as_boxes(data.answers):
        state.filter_bar(data.menus)
        import_module(f"overrun.dashboard.views.{name}").draw()


def shown(api: FakeApi, monkeypatch: pytest.MonkeyPatch, page: str, **query: str) -> AppTest:
    """The page after its first run, every cache cold."""
    monkeypatch.setenv("OVERRUN_URL", api.url)
    data.forget()
    app = AppTest.from_function(script, args=(page,), default_timeout=120)
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception, app.exception
    return app


def words(app: AppTest) -> str:
    """All HTML that the page placed."""
    return "\n".join(element.proto.body for element in app.get("html")).replace("\u00a0", " ")


def pressed(app: AppTest, label: str) -> None:
    """Press the button of that name."""
    next(button for button in app.button if button.label == label).click().run()


def plain(app: AppTest) -> str:
    """The same without tags."""
    return re.sub(r"<[^>]+>", " ", words(app))


def charts_of(app: AppTest) -> list[Any]:
    return [msgspec.json.decode(element.proto.spec) for element in app.get("plotly_chart")]


@pytest.fixture(scope="module")
def demo() -> Iterator[FakeApi]:
    con = store()
    insert(con, vllm_spans())
    vllm_gauges(con)
    with fake_api(con) as api:
        yield api


@pytest.fixture(scope="module")
def empty() -> Iterator[FakeApi]:
    with fake_api(store()) as api:
        yield api


def api_over(*frames: Any) -> tuple[duckdb.DuckDBPyConnection, Any]:
    con = store()
    insert(con, *frames)
    return con, fake_api(con)


def test_latencies_without_a_limit_stand_behind_a_fold_of_the_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    con, serving = api_over(requests(140, other_ms=100.0))
    assert "Further latencies" not in plain(shown_once(serving, monkeypatch))
    con.execute("update requests set usable_ns = 7_654_000_000 where not error")
    text = plain(shown_once(fake_api(con), monkeypatch))
    for expected in (
        "Further latencies: usable answer",
        "Until the answer is usable, as the application marks it",
        "overrun.usable_answer",
        "7.65 s",
    ):
        assert expected in text


def shown_once(serving: Any, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    with serving as api:
        return shown(api, monkeypatch, "verdict", **WINDOW)


def test_the_verdict_page_says_what_the_report_says(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "verdict", **WINDOW)
    report = reports.build(demo.con.cursor(), Window(start=T0, end=at(150)), parse_slo(SLO))
    text = plain(app)
    assert report.verdict.sentence.replace("'", "&#x27;") in words(app)
    for expected in (
        "52.5 s",
        "limit 1.00 s",
        "24.5 %",
        "1,499",
        "19.0 s",
        "2026-11-20 10:00:00 to 10:02:30 UTC",
        report.verdict.mitigation,
    ):
        assert expected in text
    assert "ov-bad" in words(app)
    assert not charts_of(app)  # the first page draws no Plotly


def test_causes_that_are_still_being_sought_are_waited_for_and_their_age_is_said(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MOST_AT_ONCE", 100)
    monkeypatch.setattr(demo, "sought", lambda *_: None)
    data.forget()
    verdict, findings = (
        shown(demo, monkeypatch, page, **WINDOW) for page in ("verdict", "findings")
    )
    assert "The search for causes is running among 1,499 requests" in plain(verdict)
    assert "24.5 %" in plain(verdict)  # the numbers are there
    assert "The search for causes is running" in plain(findings)
    assert "No finding" not in plain(findings)
    con, window = demo.con.cursor(), Window(start=T0, end=at(150))
    found = seek(con, window, parse_slo(SLO), None, 1499)[1]
    monkeypatch.setattr(demo, "sought", lambda *_: (41.0, found))
    data.forget()
    findings.run()
    assert "being sought" not in plain(findings)
    assert "findings 41 s old" in plain(findings)
    assert "under capacity" in plain(findings)
    data.forget()


@pytest.mark.parametrize("page", [place.name for place in nav.PLACES if place.asks])
def test_what_a_page_needs_can_be_asked_for_before_it_is_drawn(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.setenv("OVERRUN_URL", demo.url)
    data.forget()
    monkeypatch.setattr(
        data._ANSWERS, "_clock", lambda: 0.0
    )  # on a slow machine the first answers would be old by the time the page is drawn
    asked = tuple(sorted(WINDOW.items()))
    for need in import_module(f"overrun.dashboard.views.{page}").needs(
        asked, data.report(asked), WINDOW
    ):
        need()
    demo.asked.clear()
    app = AppTest.from_function(script, args=(page,), default_timeout=120)
    for name, value in WINDOW.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception, app.exception
    # Nothing is asked but what the filters need, and the list of fixes.
    assert {path for path, _ in demo.asked} <= {"holdings", "whatif"}


LATER = f"{rfc3339(T0 + timedelta(seconds=100))}..{rfc3339(T0 + timedelta(seconds=150))}"
CHOSEN = {
    "budget": {"metric": "E2E"},
    "engine": {"metric": "E2E"},
    "traces": {"metric": "E2E", "box": "20261120T100000-20261120T100130_500-9000"},
    "compare": {"after": LATER},
    "whatif": {"fix": "clip", "p_stage": "decode", "p_limit_ms": "750", "metric": "E2E"},
}


@pytest.mark.parametrize("query", [{}, CHOSEN], ids=["plain", "chosen"])
@EVERY
def test_what_stands_before_the_program_is_the_pages_own_first_box(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch, page: str, query: dict[str, dict[str, str]]
) -> None:
    app = shown(demo, monkeypatch, page, **WINDOW, **query.get(page, {}))
    before = first_paint.of_page(page, WINDOW | query.get(page, {}))
    assert before is not None
    assert before.replace("ov-lead", "ov-box").replace("\u00a0", " ") in words(app)


def test_a_prediction_that_is_not_there_is_not_waited_for(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERRUN_URL", demo.url)
    data.forget()
    demo.asked.clear()
    before = first_paint.of_page("whatif", WINDOW | {"fix": "clip"})
    assert before is not None
    assert "Computing" in before
    assert not any(path.startswith("whatif/") for path, _ in demo.asked)


def test_a_rehearsal_asks_about_the_newest_minute(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERRUN_URL", demo.url)
    data.forget()
    demo.asked.clear()
    data.rehearse()
    newest = demo.answer("holdings", {"since": "1s"}).newest
    assert {path for path, _ in demo.asked} == {
        "holdings",
        "report",
        "burn",
        "indicators",
        "doctor",
        "series",
        "heatmap",
        "engine",
    }
    assert {query["from"] for path, query in demo.asked if path != "holdings"} == {
        rfc3339(newest - timedelta(minutes=1))
    }


def test_the_budget_page_draws_sums_that_are_the_apis(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "budget", **WINDOW)
    stages = demo.answer("stages", WINDOW)
    bullets, waterfall, heat = charts_of(app)
    shared = demo.answer("cohorts", {**WINDOW, "metric": "ttft"})
    assert f"{shared.selection}, n {shared.n_slow:,}: ".lower() in plain(app).lower()
    assert waterfall["data"][0]["y"][-1] == stages.slow_ms
    assert "1 of 5 groups over budget" in plain(app)
    assert len(bullets["layout"]["annotations"]) == 2 * 4
    assert sum(map(sum, heat["data"][0]["customdata"])) == 1499


def test_the_budget_page_has_a_row_for_every_budget_of_sampled_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = [100.0, 900.0] * 300
    _, serving = api_over(
        requests(
            600,
            every_s=0.2,
            route=["/chat", "/<b>report"] * 300,
            retrieval_ms=slow,
            decode_ms=1_500.0,
            ttft_other_ms=50.0,
            sampling="th:8",
            sample_weight=2.0,
        )
    )
    with serving as api:
        api.settings = Settings(
            budgets={"/<b>report": {"retrieval": 500.0}, "/chat": {"retrieval": 1_200.0}}
        )
        app = shown(api, monkeypatch, "budget", **WINDOW, metric="E2E")
    text = " ".join(html.unescape(plain(app)).split())
    assert "/<b>report 300 0 (0 %) P95 2.40 s retrieval 900 ms of 500 ms" in text
    assert "/chat 300" in text
    assert "<b>report" not in words(app).replace("&lt;b&gt;report", "")
    assert "600 requests with E2E, sampled, weighted to 1,200 requests" in text


def test_the_traces_page_lists_the_slowest_and_draws_one(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "traces", **WINDOW)
    assert "Slowest TTFT 55.1 s" in plain(app)
    assert words(app).count("<tr") - 1 == 200
    (heat,) = charts_of(app)
    assert sum(map(sum, heat["data"][0]["customdata"])) == 1499
    assert "first token 600 ms" in plain(app)
    assert "stages on the path add up to E2E: 1.00 s" in plain(app)


def test_a_box_from_the_url_narrows_the_list_and_is_left_with_a_button(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(
        demo, monkeypatch, "traces", **WINDOW, box="20261120T100100-20261120T100110_1000-60000"
    )
    assert "In the box: 2026-11-20 10:01:00 to 10:01:10 UTC, TTFT 1.00 s to 60.0 s" in plain(app)
    asked = [parameters for path, parameters in demo.asked if path == "requests"][-1]
    assert (asked["from"], asked["to"], asked["min_ms"], asked["max_ms"]) == (
        "2026-11-20T10:01:00+00:00",
        "2026-11-20T10:01:10+00:00",
        "1000.0",
        "60000.0",
    )
    assert charts_of(app)[0]["layout"]["shapes"][0]["type"] == "rect"
    pressed(app, "Clear the box")
    assert "In the box" not in plain(app)
    assert "box" not in app.query_params


def test_a_large_trace_is_folded_and_can_be_read_in_pages(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.dashboard.fake_api.TRACE_SPANS", 1000)
    app = shown(demo, monkeypatch, "traces", **WINDOW, trace="c" * 32)
    assert "more" in plain(app)
    assert "tiny 700" not in plain(app)
    app.selectbox(key="spans").select("601-800").run()
    assert "tiny 700" in plain(app)


def test_a_trace_from_the_url_is_drawn(demo: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    app = shown(demo, monkeypatch, "traces", **WINDOW, trace="b" * 32)
    assert "b" * 32 in plain(app)
    assert app.text_input(key="trace").value == "b" * 32
    assert "Request bbbbbbbb: TTFT 600 ms" in plain(app)
    assert "not among the listed requests" in plain(app)
    assert [button.disabled for button in app.button if "in the list" in button.label] == [True] * 2


def test_the_next_slow_request_is_one_press_away(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "traces", **WINDOW)
    rows = demo.answer("requests", {**WINDOW, "sort": "ttft", "metric": "ttft"}).rows
    pressed(app, "Next in the list")
    assert app.text_input(key="trace").value == rows[1].trace_id
    assert "number 2 of the 200 listed" in plain(app)
    pressed(app, "Previous in the list")
    assert app.text_input(key="trace").value == rows[0].trace_id
    assert "typical request, to its first token" in plain(app)


def test_a_trace_that_is_gone_is_a_sentence_and_the_list_stays(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "traces", **WINDOW, trace=GONE)
    assert (
        f"✗ No span of trace {GONE} is stored: it may have expired, or it is in another --db. Choose a row below, or empty the field."
        in plain(app)
    )
    assert words(app).count("<tr") - 1 == 200


def test_long_names_leave_room_for_the_columns_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    _, serving = api_over(
        requests(140, other_ms=2000.0, ttft_other_ms=50.0, service="s" * 200, route="/ask")
    )
    with serving as api:
        body = words(shown(api, monkeypatch, "traces", **WINDOW))
    assert re.search(r">s{30,40}\W+</td>", body)
    assert f'title="{"s" * 200}"' in body


@OF_REQUESTS
def test_an_empty_store_shows_how_to_send_telemetry_to_this_server(
    empty: FakeApi, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.setenv("OVERRUN_READ_TOKEN", "secret-token")
    app = shown(empty, monkeypatch, page)
    assert "Waiting for the first span" in plain(app)
    code = "\n".join(block.value for block in app.code)
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT={empty.url}" in code
    assert f"--otlp-traces-endpoint {empty.url}/v1/traces" in code
    assert "$OVERRUN_INGEST_TOKEN" in code
    assert "secret-token" not in code + words(app)


def test_a_window_of_spans_without_a_request_says_what_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    con, later = store(), requests(20, start_s=1000.0, other_ms=100.0)
    insert(con, requests(20, other_ms=100.0))
    insert_spans(con, spans_of(later, "embeddings bge-m3", "retrieval", 0.0, 40.0))
    with fake_api(con) as api:
        alone = {"from": rfc3339(at(900)), "to": rfc3339(at(1100))}
        app = shown(api, monkeypatch, "traces", **alone)
        assert "No request in this window" in plain(app)
        assert "Spans arrived in this window" in plain(app)
        assert "chat: 20 spans, 0 of model calls" in plain(app)
        # Those of another route may well be of requests.
        assert "Spans arrived" not in plain(
            shown(api, monkeypatch, "traces", route="/nope", **WINDOW)
        )


def test_an_offset_written_into_an_address_by_hand_is_read(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(
        demo, monkeypatch, "findings", **{"from": "2026-11-20T10:00:00 00:00", "to": WINDOW["to"]}
    )
    assert {query["from"] for path, query in demo.asked if path == "report"} >= {
        "2026-11-20T10:00:00+00:00"
    }


@OF_REQUESTS
def test_an_empty_window_names_its_filters_and_offers_the_newest(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    query = {"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T01:00:00Z", "service": "nobody"}
    app = shown(demo, monkeypatch, page, **query)
    assert "No request in this window" in plain(app)
    assert "with service nobody" in plain(app)
    pressed(app, "Show the hour up to the newest request")
    assert "2026-11-20" in app.text_input(key="to").value
    assert app.text_input(key="from").value < app.text_input(key="to").value


@pytest.fixture(scope="module", params=[1, 5])
def few(request: pytest.FixtureRequest) -> Iterator[tuple[FakeApi, int]]:
    _, serving = api_over(requests(request.param, other_ms=9000.0, ttft_other_ms=8000.0))
    with serving as api:
        yield api, request.param


@EVERY
def test_too_few_requests_are_said_and_nothing_is_red(
    few: tuple[FakeApi, int], monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    api, n = few
    app = shown(api, monkeypatch, page, **WINDOW)
    assert "ov-over" not in words(app)
    assert "ov-bad" not in words(app)
    if page == "verdict":
        assert "Not enough data" in plain(app)
        assert f"only {say_count(n, 'request')}" in plain(app)


def test_within_budget_is_said_without_red(monkeypatch: pytest.MonkeyPatch) -> None:
    _, serving = api_over(requests(140, other_ms=100.0, ttft_other_ms=50.0))
    with serving as api:
        app = shown(api, monkeypatch, "verdict", **WINDOW)
    assert "Within budget" in plain(app)
    assert "ov-over" not in words(app)


def test_over_the_limit_by_chance_is_said_with_its_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [33_000.0 if k % 16 == 0 else 100.0 for k in range(140)]
    _, serving = api_over(requests(140, other_ms=late, ttft_other_ms=50.0))
    with serving as api:
        app = shown(api, monkeypatch, "verdict", **WINDOW)
    assert "Over the limit, not certain: E2E P95 33.0 s, limit 5.00 s" in plain(app)


def test_failing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _, serving = api_over(requests(100, other_ms=100.0, error=True, error_type=HOSTILE))
    with serving as api:
        app = shown(api, monkeypatch, "verdict", **WINDOW)
    assert "Failing: 100.0 %" in plain(app)
    assert "<img src=x" not in words(app)
    assert "<script" not in words(app)


def test_a_fixed_window_stands_in_sight_and_links_name_no_filter_twice(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a closed popover holds is not bound to the URL: the next page's would show another window.
    app = shown(demo, monkeypatch, "findings", **WINDOW)
    assert not [
        block for block in app.main.children.values() if "popover" in str(type(block)).lower()
    ]
    assert [app.text_input(key=name).value for name in ("from", "to")] == [
        WINDOW["from"],
        WINDOW["to"],
    ]
    assert {link.proto.query_string.partition("=")[0] for link in app.get("page_link")} <= {
        "",
        "trace",
        "fix",
    }


def test_a_failing_window_leads_to_its_failed_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [i >= 80 and i % 2 == 0 for i in range(150)]
    _, serving = api_over(
        requests(
            150, other_ms=100.0, error=late, error_type=["quota" if bad else None for bad in late]
        )
    )
    with serving as api:
        verdict = shown(api, monkeypatch, "verdict", **WINDOW)
        traces = shown(api, monkeypatch, "traces", **WINDOW)
        assert plain(shown(api, monkeypatch, "traces", show="failed", **WINDOW)) == plain(traces)
        assert "Slowest" in plain(shown(api, monkeypatch, "traces", show="slowest", **WINDOW))
        assert api.answer("report", WINDOW).verdict.sentence in plain(
            shown(api, monkeypatch, "budget", **WINDOW)
        )
    assert "since 10:0" in " ".join(plain(verdict).split())
    assert "no new version or model" in plain(verdict)
    (link,) = [link for link in verdict.get("page_link") if link.proto.label == "Failed requests"]
    assert "show=failed" in link.proto.query_string
    assert "23.3 % of requests failed: quota 35" in plain(traces)
    statuses = re.findall(r">(ok|✗ quota)</td>", words(traces))
    assert statuses[:36] == ["✗ quota"] * 35 + ["ok"]


def test_an_engines_gauges_alone_say_what_a_verdict_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    con = store()
    gauge(con, "kv_cache_usage", {15.0 * i: 0.97 for i in range(9)})
    with fake_api(con) as api:
        app = shown(api, monkeypatch, "verdict", **WINDOW)
    assert "By the engine's gauges alone" in html.unescape(plain(app))
    assert "gpu-0" in plain(app)
    assert not any("newest sample" in button.label for button in app.button)  # it is in sight


def test_an_engines_metrics_alone_give_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    con = store()
    histogram(
        con,
        "e2e",
        [0.5, 1.0, 2.0, 5.0, 8.0, 16.0],
        {15.0 * i: [0, 10 * i, 10 * i, 0, 0, 40 * i, 0] for i in range(9)},
    )
    gauge(con, "kv_cache_usage", {15.0 * i: 0.97 for i in range(9)})
    with fake_api(con) as api:
        verdict, engine, budget = (
            shown(api, monkeypatch, page, **WINDOW) for page in ("verdict", "engine", "budget")
        )
    assert "E2E P95 between 8.00 s and 16.0 s, limit 5.00 s" in plain(verdict)
    assert "interpolated in the engine's histograms" in html.unescape(plain(verdict))
    assert "1 signal reached the threshold" in plain(engine)
    assert "no request, so no latency above them" in plain(engine)
    (chart,) = charts_of(engine)
    assert [trace["name"] for trace in chart["data"]] == [
        "KV cache used"
    ]  # and no empty row above it
    assert not any(group.key == "metric" for group in engine.get("button_group"))
    assert "By the engine's metrics alone" in html.unescape(plain(budget))
    assert all("Waiting for the first span" not in plain(app) for app in (verdict, engine, budget))
    with fake_api(con) as api:
        later = shown(
            api,
            monkeypatch,
            "verdict",
            **{"from": "2026-11-21T10:00:00Z", "to": "2026-11-21T11:00:00Z"},
        )
        assert "metrics show no latency in this window" in html.unescape(plain(later))
        assert "newest sample is from 2026-11-20 10:02:00 UTC" in plain(later)
        assert "Waiting for the first span" not in plain(later)
        pressed(later, "Show the hour up to the newest sample")
        assert "E2E P95 between" in plain(later)
    insert(con, requests(1, other_ms=10.0, start_s=900.0))
    with fake_api(con) as api:
        assert "No request in this window" in plain(
            shown(api, monkeypatch, "verdict", route="/ask", **WINDOW)
        )


def test_old_data_is_called_old_when_the_window_follows_the_clock(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.dashboard.state.now", lambda: at(600))
    assert "Newest request is <b>8 min</b> old" in words(
        shown(demo, monkeypatch, "verdict", since="1h", slo=SLO)
    )
    monkeypatch.setattr("overrun.dashboard.state.now", lambda: at(170))
    assert "Newest request is" not in words(
        shown(demo, monkeypatch, "verdict", since="1h", slo=SLO)
    )


@pytest.mark.parametrize(
    ("refuse", "said"),
    [
        ((401, b"{}"), "OVERRUN_READ_TOKEN"),
        ((404, b"nothing here"), "of different versions"),
        ((400, b'{"error":"no such key"}'), "No such key."),
        ((500, b'{"error":"it failed"}'), "The server failed"),
        ((200, b"not json"), "same version"),
    ],
)
def test_a_server_that_does_not_answer_properly_is_a_sentence(
    empty: FakeApi, monkeypatch: pytest.MonkeyPatch, refuse: tuple[int, bytes], said: str
) -> None:
    monkeypatch.setattr(empty, "refuse", refuse)
    assert said in plain(shown(empty, monkeypatch, "verdict"))


def test_no_server_is_a_sentence_and_the_filters_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_api(store()) as gone:
        pass
    app = shown(gone, monkeypatch, "verdict", service="api", slo=SLO)
    text = plain(app)
    assert app.selectbox(key="service").value == "api"
    assert app.text_input(key="slo").value == SLO
    assert "The server cannot be reached" in text
    assert "overrun serve" in text
    assert "updates by itself" in text


def test_filters_in_the_url_reach_the_api_and_menus_hold_the_windows_values(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "verdict", **WINDOW, service="vllm")
    assert app.selectbox(key="service").value == "vllm"
    assert app.selectbox(key="service").options == ["vllm"]
    path, parameters = next(asked for asked in reversed(demo.asked) if asked[0] == "report")
    assert (path, parameters) == ("report", {**WINDOW, "service": "vllm"})


@pytest.fixture(scope="module")
def hostile() -> Iterator[FakeApi]:
    _, serving = api_over(
        requests(
            140,
            retrieval_ms=9000.0,
            ttft_retrieval_ms=9000.0,
            service=HOSTILE,
            route=HOSTILE,
            name=HOSTILE,
            model=HOSTILE,
        )
    )
    with serving as api:
        yield api


@EVERY
def test_hostile_names_are_text_on_every_page(
    hostile: FakeApi, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    app = shown(hostile, monkeypatch, page, **WINDOW)
    # A column without a name is one that a screen reader cannot say.
    for forbidden in ("<script", "<img src=x", "\x1b", '<th scope="col"></th>'):
        assert forbidden not in words(app)


def test_snippets_hold_the_real_address() -> None:
    for _, lines in empty_states.snippets("http://10.1.2.3:14318"):
        assert "10.1.2.3" in lines
    assert (
        "[::1]:4317"
        in dict(empty_states.snippets("http://[::1]:4318"))[
            "SGLang (gRPC; 4317 unless `overrun serve` printed another port)"
        ]
    )


def test_a_length_that_is_no_preset_is_a_window_from_then_on(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "verdict", since="4d")
    assert app.text_input(key="from").value == "-4d"
    assert [query.get("from") for path, query in demo.asked if path == "report"][-1] == "-4d"
    assert (
        Filters.of({"since": "4d"}).from_,
        Filters.of({"since": ""}),
        Filters.of({"since": "6h"}),
    ) == ("-4d", Filters(), Filters("6h"))
    assert Filters.of({"since": "4d", "from": "-2h"}).from_ == "-2h"


def test_a_length_that_cannot_be_read_is_said_and_not_taken_for_another(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "verdict", since="2 weeks")
    assert app.text_input(key="from").value == "2 weeks"
    assert Filters.of({"since": "2 weeks"}).from_ == "2 weeks"
    assert "2 weeks&#x27; is no" in words(app)


def test_follow_now_leaves_a_fixed_window(demo: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overrun.dashboard.state.now", lambda: at(170))
    app = shown(demo, monkeypatch, "verdict", **WINDOW)
    assert not app.button_group
    pressed(app, "Follow now")
    assert not app.text_input(key="from").value
    assert app.button_group(key="since").value == "1h"
    asked = [parameters for path, parameters in demo.asked if path == "report"][-1]
    assert asked["to"] == rfc3339(at(170))


def test_a_tenant_is_a_filter_where_there_are_tenants(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "tenant" not in {
        box.key for box in shown(demo, monkeypatch, "verdict", **WINDOW).selectbox
    }
    _, serving = api_over(
        requests(70, other_ms=9000.0, tenant="acme"),
        requests(70, other_ms=9000.0, tenant=HOSTILE, trace_hi=2),
    )
    with serving as api:
        app = shown(api, monkeypatch, "verdict", **WINDOW, tenant="acme")
        assert sorted(app.selectbox(key="tenant").options) == sorted(["acme", HOSTILE])
        assert next(p for path, p in reversed(api.asked) if path == "report")["tenant"] == "acme"


def test_a_finding_shows_its_evidence_its_fix_and_its_exemplars(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "findings", **WINDOW)
    found = reports.build(demo.con.cursor(), Window(start=T0, end=at(150)), parse_slo(SLO)).findings
    text = plain(app)
    assert found
    for finding in found:
        assert finding.fix is not None
        assert finding.fix.predicted is not None
        for expected in (
            finding.headline,
            finding.fix.title,
            say_ms(finding.fix.predicted.after),
            say_ms(finding.fix.predicted.before),
        ):
            assert expected in text
        for trace_id in finding.exemplars:
            assert any(
                trace_id[:8] in link.proto.label and f"trace={trace_id}" in link.proto.query_string
                for link in app.get("page_link")
            )


def test_a_cause_that_is_not_sure_is_headed_as_likely(demo: FakeApi) -> None:
    made = reports.build(demo.con.cursor(), Window(start=T0, end=at(150)), parse_slo(SLO))
    told = msgspec.structs.replace(
        made.verdict, cause=made.findings[0].rule, cause_status="not_known", why="It may be a or b."
    )
    words, [below] = findings.headline(msgspec.structs.replace(made, verdict=told))
    assert words.startswith("The cause is not known; most likely ")
    assert below == "It may be a or b."


def test_all_facts_are_asked_for_and_shown_on_request(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "findings", **WINDOW)
    assert "output tokens of a call" not in plain(app)
    app.toggle(key="facts").set_value(True).run()
    text = plain(app)
    assert "output tokens of a call" in text
    assert "no GPU clock was recorded before and now" in text
    assert not app.exception


def test_an_exemplar_says_what_it_stands_for_and_what_the_fix_would_buy(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = reports.build(
        demo.con.cursor(), Window(start=T0, end=at(150)), parse_slo(SLO)
    ).findings[0]
    app = shown(demo, monkeypatch, "traces", **WINDOW, trace=finding.exemplars[0])
    assert f"An exemplar of  {finding.rule.replace('_', ' ')}" in plain(app)
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert say_ms(finding.fix.predicted.after) in plain(app)
    assert any(f"fix={finding.fix.id}" in link.proto.query_string for link in app.get("page_link"))
    assert "An exemplar of" not in plain(
        shown(demo, monkeypatch, "traces", **WINDOW, trace="e" * 32)
    )


def test_without_a_finding_the_page_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    _, serving = api_over(requests(140, other_ms=100.0, ttft_other_ms=50.0))
    with serving as api:
        text = plain(shown(api, monkeypatch, "findings", **WINDOW))
    assert "No finding" in text
    assert "within budget" in text


def test_data_health_lists_every_check_worst_first(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = plain(shown(demo, monkeypatch, "health", **WINDOW))
    checks = reports.build(
        demo.con.cursor(), Window(start=T0, end=at(150)), parse_slo(SLO)
    ).data_quality
    for check in checks:
        assert check.detail.replace("'", "&#x27;") in text
    bad = [check for check in checks if check.status != "ok"]
    assert f"{len(bad)} of {len(checks)} checks" in text
    assert text.index(bad[0].detail, text.index("What was found")) < text.index(
        next(c.detail for c in checks if c.status == "ok")
    )
    assert "No span of this window names a service" in text


def test_data_health_shows_every_target_and_instance_that_is_not_well_first() -> None:
    when = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
    states = {"gpu-0": "up", "gpu-1": "slow", "gpu-2": "down", "gpu-3<b>": "unknown names"}
    targets = [
        Target(
            instance=name,
            state=state,
            reason="" if state == "up" else f"why {name}",
            since=when,
            last=when,
            attempts=13,
            answered=3,
            took_s=0.25,
        )
        for name, state in states.items()
    ]
    shown = health.sources(SimpleNamespace(targets=targets, instances=[]))
    assert [shown.index(name) for name in ("gpu-1", "gpu-2", "gpu-0")] == sorted(
        shown.index(name) for name in ("gpu-1", "gpu-2", "gpu-0")
    )
    for words in ("✗ down", "! slow", "! unknown names", "✓ up", "3 of 13", "why gpu-2"):
        assert words in shown
    assert "<b>" not in shown
    assert "unnamed" not in shown
    assert health.sources(SimpleNamespace(targets=[], instances=[])) == ""


def test_data_health_says_per_service_what_to_switch_on(monkeypatch: pytest.MonkeyPatch) -> None:
    con, serving = api_over(requests(140, prefill_ms=10.0, ttft_prefill_ms=10.0))
    con.execute("""insert into shapes by name select 1 as shape, 1::ubigint as source_id, 2::utinyint as kind, 0::utinyint as status, 0::uinteger as flags,
        8::utinyint as stage, 2::utinyint as role, 'openai' as provider, 'genai' as dialect, []::varchar[] as keys""")
    con.execute("""insert into spans by name select i as seq, 7::ubigint as trace_hi, i::ubigint as trace_lo, 1::ubigint as span_id, 0::ubigint as parent_id,
        epoch_ns(timestamptz '2026-11-20 10:00:01Z') as start_ns, 10000000 as duration_ns, 'chat' as name, 1 as shape from range(20) t(i)""")
    con.execute("""insert into sources by name select 1::ubigint as source_id, 'shop <b>' as service, '' as scope_name, '' as scope_version,
        map {} as resource_attributes, map {} as scope_attributes, '' as resource_schema_url, '' as scope_schema_url""")
    with serving as api:
        app = shown(api, monkeypatch, "health", **WINDOW)
        (service,) = api.answer("doctor", {k: WINDOW[k] for k in ("from", "to")}).services
    head, lines = said(service)
    for line in (head, *lines):
        assert html.escape(line) in words(app)
    assert any(
        line.startswith("never seen: output_tokens (hides TPOT and token rates). Switch on:")
        for line in lines
    )
    # It looks at whole services: other filters are not sent along, which the server would refuse.
    assert [query for path, query in api.asked if path == "doctor"] == [
        {"from": WINDOW["from"], "to": WINDOW["to"]}
    ]


def test_two_windows_are_compared_and_picked_in_the_url(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = {
        "before": "2026-11-20T10:00:00Z..2026-11-20T10:00:40Z",
        "after": "2026-11-20T10:00:50Z..2026-11-20T10:01:40Z",
    }
    app = shown(demo, monkeypatch, "compare", **WINDOW, **sides)
    found = demo.answer("compare", {**WINDOW, **sides})
    text = plain(app)
    assert found.outcome == "regressed"
    assert found.sentence in text
    picker, shift, stages = charts_of(app)
    assert [note["text"] for note in picker["layout"]["annotations"]] == ["A before", "B after"]
    moved = {row.stage: row.difference_ms for row in found.stages}
    assert stages["data"][0]["x"] == [moved[stage] for stage in stages["data"][0]["y"]]
    assert f"stages add up to {say_ms(sum(moved.values()))}" in text
    first = found.metrics[0].quantiles[0]
    assert shift["data"][0]["x"][0] == pytest.approx(
        min(100.0 * first.difference_ms / first.before_ms, BEYOND)
    )


def test_without_a_choice_the_two_halves_are_compared(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "compare", **WINDOW)
    asked = [parameters for path, parameters in demo.asked if path == "compare"][-1]
    assert asked["before"].startswith("2026-11-20T10:00:00")
    assert ".." in asked["after"]
    assert app.text_input(key="before").placeholder == asked["before"]


def test_a_side_that_cannot_be_read_is_a_sentence(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "compare", **WINDOW, before="<img src=x>", after="x")
    assert "cannot be compared: write a range" in plain(app)
    assert "<img" not in words(app)


def test_the_verdict_shows_how_fast_the_budget_burns(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.dashboard.fake_api.T0", at(150))
    text = plain(shown(demo, monkeypatch, "verdict", **WINDOW))
    assert "Error budget burn" in text
    for pair in demo.answer("burn", WINDOW).pairs:
        assert f"{min(pair.long_burn, pair.short_burn):.1f}×" in text


def test_the_engine_page_says_whether_it_warned(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "engine", **WINDOW)
    found = demo.answer("engine", {**WINDOW, "metric": "ttft"})
    (chart,) = charts_of(app)
    assert [trace["name"] for trace in chart["data"]] == [
        "TTFT P95",
        "KV cache used",
        "Requests waiting",
    ]
    assert chart["data"][1]["y"] == found.indicators[0].values
    text = plain(app)
    for row in found.indicators:
        assert row.lead_s is not None
        assert say_age(abs(row.lead_s)) in text
    assert "Not received in this window: Running batch" in text


def test_what_warns_no_better_than_chance_stands_apart(demo: FakeApi) -> None:
    report = demo.answer("report", WINDOW)
    learned = partial(Indicator, recall=0.5, lead_s_median=30.0, events=4)
    report.indicators = [
        learned(indicator="queue_depth", threshold=3.0, precision=0.9, null_precision=0.4),
        learned(indicator="iteration_time", threshold=0.035, precision=0.4, null_precision=0.4),
        learned(
            indicator="kv_cache_usage", threshold=0.9, precision=0.8, null_precision=0.4, lags=True
        ),
    ]
    body = engine.learned(report)
    told, _, apart = body.partition("<details")
    assert "Requests waiting" in told
    assert "Step time" not in told
    assert "KV cache used" not in told
    assert "2 warn no better than chance, or too late" in apart
    assert "from 35 ms" in apart
    assert "from 90 %, lags" in html.unescape(apart)
    report.indicators = report.indicators[1:]
    assert "No indicator warned better than alerts at random times" in engine.learned(report)


def test_without_engine_metrics_the_engine_page_names_what_to_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, serving = api_over(requests(140, other_ms=9000.0))
    with serving as api:
        app = shown(api, monkeypatch, "engine", **WINDOW)
    assert "The inference servers sent no metrics here" in plain(app)
    assert "kv_cache_usage" in plain(app)
    assert not charts_of(app)


def length_artifact(folder: Path, *, p90: float = 0.91, scores: bool = True) -> Path:
    """An artifact whose models are never opened: the page reads what it says of itself."""
    scored = {
        "rows": 1000,
        "mae": 42.0,
        "median_ape": 0.3,
        "kendall_tau": 0.4,
        "tertile_accuracy": 0.61,
        "p10_coverage": 0.11,
        "p90_coverage": p90,
        "p99_coverage": 0.99,
    }
    route = {
        "route": HOSTILE,
        "skill": "good",
        "reason": "better",
        "reduction": 0.31,
        "reduction_interval": [0.25, 0.36],
    }
    route |= {"scores": scored} if scores else {}
    manifest = {
        "features": ["input_tokens"],
        "quantiles": {name: {"level": level} for name, level in QUANTILES.items()},
        "routes": [route],
        "bucket_edges": [100, 400],
        "training": {
            "start": "2026-11-19",
            "end": "2026-11-20",
            "rows": {"train": 8000, "test": 1000},
        },
    }
    files = dict.fromkeys(
        (HISTORY, CONFORMAL, GOLDEN, *(model_file(name, "onnx") for name in QUANTILES)), b"{}"
    )
    write_artifact(folder, manifest, files, check=lambda _: None)
    return folder


@pytest.mark.parametrize(
    ("p90", "said"),
    [
        (0.91, "✓ P90 holds for 91.0 % of 1,000 test requests: calibrated"),
        (0.7, "not calibrated, use with care"),
    ],
)
def test_the_length_page_leads_with_calibration(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, p90: float, said: str
) -> None:
    monkeypatch.setenv("OVERRUN_ARTIFACT", str(length_artifact(tmp_path / "artifact", p90=p90)))
    app = shown(demo, monkeypatch, "length", **WINDOW)
    assert said in plain(app)
    assert "31.0 %" in plain(app)
    (chart,) = charts_of(app)
    assert chart["data"][1]["y"] == [0.11, p90, 0.99]
    assert "<img src=x" not in words(app)
    assert any(
        "predictor-" in button.proto.label or "The predictor" in button.proto.label
        for button in app.get("download_button")
    )


def test_an_artifact_without_scores_is_no_proof(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(
        "OVERRUN_ARTIFACT", str(length_artifact(tmp_path / "artifact", scores=False))
    )
    assert "carries no scores" in plain(shown(demo, monkeypatch, "length", **WINDOW))


def test_a_damaged_artifact_is_a_sentence(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = length_artifact(tmp_path / "artifact")
    (folder / HISTORY).write_text("{ }")
    monkeypatch.setenv("OVERRUN_ARTIFACT", str(folder))
    text = plain(shown(demo, monkeypatch, "length", **WINDOW))
    assert "cannot be loaded" in text
    assert "history.json" in text


def test_without_a_predictor_the_page_says_how_to_train_one(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OVERRUN_ARTIFACT", raising=False)
    app = shown(demo, monkeypatch, "length", **WINDOW)
    assert "No predictor is loaded" in plain(app)
    assert f"overrun length train --url {demo.url}" in plain(app)


def test_the_artifact_is_handed_out_as_it_is(tmp_path: Path) -> None:
    from overrun.dashboard.views.length import zipped

    folder = length_artifact(tmp_path / "artifact")
    (folder / "stray.txt").write_text("x")
    with zipfile.ZipFile(io.BytesIO(zipped(load_artifact(folder)))) as archive:
        archive.extractall(tmp_path / "copy")
    assert load_artifact(tmp_path / "copy").version == load_artifact(folder).version
    assert not (tmp_path / "copy" / "stray.txt").exists()


def test_a_what_if_is_the_apis_answer(demo: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    app = shown(
        demo, monkeypatch, "whatif", **WINDOW, fix="clip", p_stage="queue", p_limit_ms="2000"
    )
    found = demo.answer(
        "whatif/clip", {**WINDOW, "metric": "ttft", "stage": "queue", "limit_ms": "2000"}
    )
    assert found.predicted is not None
    text = plain(app)
    for expected in (
        found.title,
        say_ms(found.predicted.before),
        say_ms(found.predicted.after),
        found.assumption,
    ):
        assert expected in text
    (chart,) = charts_of(app)
    curve = next(curve for curve in found.curves if curve.metric == "ttft")
    assert chart["data"][0]["y"] == curve.exceeded
    app.select_slider(key="p_limit_ms").set_value("5000").run()
    moved = demo.answer(
        "whatif/clip", {**WINDOW, "metric": "ttft", "stage": "queue", "limit_ms": "5000"}
    )
    assert moved.predicted is not None
    assert say_ms(moved.predicted.after) in plain(app)


def test_a_what_if_begins_with_the_first_findings_fix(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "whatif", **WINDOW)
    first = (
        reports.build(demo.con.cursor(), Window(start=T0, end=at(150)), parse_slo(SLO))
        .findings[0]
        .fix
    )
    assert first is not None
    assert app.selectbox(key="fix").value == first.id


def test_another_fix_begins_with_parameters_of_its_own(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(
        demo,
        monkeypatch,
        "whatif",
        **WINDOW,
        fix="clip",
        p_stage="queue",
        p_limit_ms="2000",
        p_replicas="7",
    )
    app.selectbox(key="fix").select("cap").run()
    assert app.selectbox(key="fix").value == "cap"
    assert not [name for name in app.query_params if name.startswith("p_")]
    app.selectbox(key="fix").select("clip").run()
    assert (
        app.select_slider(key="p_limit_ms").value != "2000"
    )  # what was asked before is not asked again unseen


def test_another_fix_with_a_parameter_of_that_name_begins_with_its_own_value(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shown(demo, monkeypatch, "whatif", **WINDOW, fix="load", p_factor="3")
    assert app.select_slider(key="p_factor").value == "3"
    app.selectbox(key="fix").select("kv_size").run()
    begun = app.select_slider(key="p_factor").value
    assert begun != "3"
    assert app.query_params.get("p_factor", [begun]) == [begun]
    asked = [parameters for path, parameters in demo.asked if path == "whatif/kv_size"]
    assert {parameters["factor"] for parameters in asked} == {begun}
    app.select_slider(key="p_factor").set_value("2").run()  # it still moves
    assert app.select_slider(key="p_factor").value == "2"
    app.selectbox(key="fix").select("load").run()
    assert app.select_slider(key="p_factor").value not in ("2", "3")


def test_a_what_if_that_cannot_be_answered_says_why(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = plain(
        shown(
            demo, monkeypatch, "whatif", **WINDOW, fix="clip", p_stage="retrieval", p_limit_ms="0.5"
        )
    )
    assert "Stage" in text or "stage" in text


def test_the_length_page_says_how_the_predictor_does_on_live_calls() -> None:
    from overrun.dashboard.views.length import live

    state: dict[str, Any] = {
        "artifact": "ab12",
        "watching": True,
        "reason": None,
        "predicted": 900,
        "rows": 800,
        "p90_coverage": 0.81,
        "error_reduction": 0.4,
        "retrain": "P90 covers 81.0% of the last 800 requests, wanted 87% to 93%",
    }
    told = live(state)  # type: ignore[arg-type]
    assert "Train again: P90 covers 81.0" in told
    assert "800" in told
    assert "too few calls so far" in live({**state, "p90_coverage": None, "retrain": None})  # type: ignore[typeddict-item]
    assert "Not watched: it was trained with prompts" in live(
        {**state, "reason": "it was trained with prompts"}
    )  # type: ignore[typeddict-item]
    assert "overrun serve --artifact" in live(None)


def test_a_link_to_a_fix_is_not_held_up_by_the_fix_chosen_before(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERRUN_URL", demo.url)
    app = AppTest.from_function(script, args=("findings",), default_timeout=120)
    for name, value in WINDOW.items():
        app.query_params[name] = value
    app.session_state["fix"], app.session_state["p_replicas"] = "cap", "3"
    app.run()
    assert any("fix=" in link.proto.query_string for link in app.get("page_link"))
    assert "fix" not in app.session_state
    assert "p_replicas" not in app.session_state
