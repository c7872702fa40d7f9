"""The dashboard in a real browser: what the page shows is what the API says, nothing leaves the machine, nothing that is sent runs."""

import csv
import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from playwright.sync_api import expect

from overrun.analysis.words.finding import SIMULATING
from overrun.dashboard import nav
from overrun.dashboard.theme import DARK, LIGHT, say_ms, say_ratio
from tests.conftest import settled
from tests.dashboard.conftest import HOSTILE, send_made
from tests.dashboard.fake_api import FakeApi
from tests.dashboard.watched import Open, Site, Watched
from tests.waiting import until


def simulated(site: Site) -> dict[str, Any]:
    """The report once its fixes have been simulated, which changes what it says."""

    def whole() -> dict[str, Any]:
        report = site.answer("report")
        return {} if SIMULATING in json.dumps(report) else report

    return until(whole)


def test_the_verdict_is_the_apis(servers: dict[str, Site], opened: Open) -> None:
    site = servers["demo"]
    report = simulated(site)
    seen = opened().open(site, "verdict")
    seen.says(
        report["verdict"]["why"],
        report["verdict"]["mitigation"],
        say_ratio(report["goodput"]["ratio"]),
        f"{report['window']['requests']:,} requests",
    )
    figures = {
        say_ms(report["latency"][f"{metric}_ms"][name])
        for metric in ("ttft", "e2e")
        for name in ("p50", "p95", "p99")
    }
    until(lambda: figures <= set(re.findall(r"[\d.]+ m?s", seen.text)), lambda: seen.text)
    assert seen.page.locator(".js-plotly-plot").count() == 0
    assert all(alt for alt in seen.page.eval_on_selector_all("img", "list => list.map(i => i.alt)"))
    seen.silent()


def test_the_budget_is_the_apis(servers: dict[str, Site], opened: Open) -> None:
    site = servers["demo"]
    stages, cells = site.answer("stages"), site.answer("heatmap", metric="ttft")
    seen = opened().open(site, "budget").drawn(3)
    typical, slow = stages["typical_ms"], stages["slow_ms"]
    seen.says(
        f"{say_ms(typical)} +{say_ms(slow - typical)} = {say_ms(slow)}",
        *(
            f"{say_ms(row['tail_ms'])} of {say_ms(row['budget_ms'])}"
            for row in stages["stages"]
            if row["over"]
        ),
    )
    drawn = seen.page.evaluate("[...document.querySelectorAll('.js-plotly-plot')].map(p => p.data)")
    assert drawn[1][0]["y"][-1] == pytest.approx(stages["slow_ms"])
    assert drawn[2][0]["customdata"] == cells["counts"]
    waterfall = seen.page.locator('[aria-label*="Waterfall from"], [alt*="Waterfall from"]')
    waterfall.first.wait_for(state="attached")
    # A value of an attribute narrows the question, and one step back takes that away. Where none differs beyond chance, all are folded.
    seen.page.locator(".ov-spreads").first.wait_for(state="attached")
    folded = seen.page.locator("details:has(.ov-spreads) > summary")
    if folded.count():
        folded.first.click()
    seen.page.locator(".ov-spreads a.ov-go[aria-label^='Only']").locator(
        "visible=true"
    ).first.click()
    seen.page.wait_for_url("**where=**")
    seen.page.locator(".ov-condition").first.wait_for()
    seen.page.go_back()
    seen.page.locator(".ov-condition").first.wait_for(state="detached")
    expect(seen.page).not_to_have_url(re.compile("where="))
    seen.silent()


def test_a_chart_is_drawn_once(servers: dict[str, Site], opened: Open) -> None:
    seen = opened()
    seen.page.add_init_script("""window.drawn = []
        Object.defineProperty(HTMLElement.prototype, '_ev', {configurable: true, set(events) {
            Object.defineProperty(this, '_ev', {value: events, writable: true, configurable: true})
            events.on('plotly_beforeplot', () => { window.drawn.push(1) })
        }})""")
    measured = (
        "[...document.querySelectorAll('.js-plotly-plot')].every(chart => chart.layout.width)"
    )
    seen.open(servers["demo"], "budget").drawn(3)
    seen.page.wait_for_function(f"window.drawn.length >= 3 && {measured}")
    seen.page.evaluate(
        "document.fonts.ready.then(() => { window.drawn = [] })"
    )  # a font that comes late has words drawn again
    seen.page.get_by_role("radio", name="E2E").click()
    seen.page.wait_for_url("**metric=E2E**")
    seen.settle()
    seen.page.wait_for_function(f"window.drawn.length >= 3 && {measured}")
    seen.page.wait_for_timeout(500)
    assert len(seen.page.evaluate("window.drawn")) == 3
    seen.page.set_viewport_size(
        {"width": 1000, "height": 900}
    )  # a place of another width is drawn anew
    seen.page.wait_for_function("window.drawn.length >= 6")


def test_traces_lead_to_one_request(servers: dict[str, Site], opened: Open) -> None:
    site = servers["demo"]
    rows = site.answer("requests", sort="ttft")["rows"]
    seen = opened().open(site, "traces").drawn(1)
    seen.says(say_ms(rows[0]["ttft_ms"]), rows[0]["trace_id"])
    seen.page.locator(".ov-list tbody tr").nth(2).click()
    seen.page.get_by_role("heading", name=f"Request {rows[2]['trace_id']}").wait_for()
    expect(seen.page.locator(".ov-list tr[aria-current] a")).to_have_attribute("tabindex", "0")
    seen.page.wait_for_url(f"**trace={rows[2]['trace_id']}**")
    seen.page.get_by_label("Trace id").fill(rows[5]["trace_id"])
    seen.page.keyboard.press("Enter")
    seen.page.get_by_role("heading", name=f"Request {rows[5]['trace_id']}").wait_for()
    seen.settle()
    seen.page.wait_for_url(f"**{rows[5]['trace_id']}**")
    seen.says(say_ms(rows[5]["e2e_ms"]))
    again = opened()
    again.page.goto(seen.page.url)
    again.page.get_by_role("heading", name=f"Request {rows[5]['trace_id']}").wait_for()
    with seen.page.expect_download() as waiting:
        seen.page.get_by_role("button", name="This trace as JSON").click()
    assert json.loads(Path(waiting.value.path()).read_text()) == replace(site, window={}).answer(
        f"traces/{rows[5]['trace_id']}"
    )
    seen.silent()


def test_a_box_on_the_heat_map_narrows_the_list(servers: dict[str, Site], opened: Open) -> None:
    seen = opened().open(servers["demo"], "traces").drawn(1)
    seen.drag(0.05, 0.35, 0.45, 0.98)
    seen.page.get_by_text("In the box:").wait_for()
    seen.page.wait_for_url(re.compile("box="))
    seen.settle()
    again = opened().open(
        servers["demo"], "traces", box=parse_qs(urlsplit(seen.page.url).query)["box"][0]
    )

    def boxes(of: Watched) -> list[str]:
        return re.findall(r"In the box: .*", of.text)

    until(lambda: boxes(again) == boxes(seen) != [], lambda: (boxes(again), boxes(seen)))
    found = re.search(r"In the box: .*: ([\d,]+) requests", seen.text)
    assert found
    assert 0 < int(found[1].replace(",", "")) < 1499
    seen.silent()


def test_a_window_is_picked_or_dragged_in_one_step_of_the_history(
    servers: dict[str, Site], opened: Open
) -> None:
    seen = opened().open(servers["demo"], "verdict")
    seen.page.locator(".ov-hero").wait_for()
    first, picker = seen.page.url, seen.page.locator(".ov-when[data-ready]")
    before = picker.locator("summary").inner_text()
    picker.locator("summary").click()
    start = picker.get_by_label("Start")
    start.fill(
        start.input_value()[:-2] + "59"
        if len(start.input_value()) == 19
        else start.input_value() + ":59"
    )
    picker.get_by_role("button", name="Show this window").click()
    seen.page.wait_for_function(
        "was => document.querySelector('.ov-when summary')?.innerText !== was", arg=before
    )
    seen.page.wait_for_url(lambda url: parse_qs(urlsplit(url).query)["from"][0].endswith("59Z"))
    seen.page.go_back()
    seen.page.wait_for_url(first)
    seen.settle()
    seen.draw(seen.page.locator(".ov-course"), 0.25, 0.75, 0.5, 0.5)
    seen.page.wait_for_function(
        "was => document.querySelector('.ov-when summary')?.innerText !== was", arg=before
    )
    seen.settle()
    seen.page.go_back()
    seen.page.wait_for_url(first)
    seen.settle()
    # A click on a step opens its slowest request.
    seen.page.locator(".ov-columns > [data-box]").last.click()
    seen.page.locator(".ov-trace").wait_for()
    seen.page.wait_for_url("**box=**")
    seen.silent()


# Of its lane, whatever the lane's width: 0 before it is drawn.
SHARE = "e => e.getBoundingClientRect().width / e.parentElement.getBoundingClientRect().width || 0"


def test_a_request_is_searched_folded_and_zoomed_by_keys(
    servers: dict[str, Site], opened: Open
) -> None:
    seen = opened().open(servers["hostile"], "traces").drawn(1)
    seen.settle()
    rows = seen.page.locator(".ov-rows")
    bar = seen.page.locator(".ov-lane .ov-off").first
    before = until(lambda: bar.evaluate(SHARE))
    rows.focus()
    seen.page.keyboard.press("+")
    until(lambda: bar.evaluate(SHARE) > 1.3 * before)
    expect(seen.page.locator(".ov-shown")).to_contain_text(" to ")
    seen.page.keyboard.press("0")
    until(lambda: bar.evaluate(SHARE) < 1.01 * before)
    seen.page.keyboard.press("/")
    seen.page.keyboard.type("retrieval")
    expect(seen.page.locator(".ov-found")).to_contain_text("1 of")
    seen.page.keyboard.press("Escape")
    shown = seen.page.locator(".ov-line").locator("visible=true")
    lines = seen.page.locator(".ov-line").count()
    expect(shown).to_have_count(lines)
    seen.page.locator(".ov-fold").first.click()
    until(lambda: 0 < shown.count() < lines)
    seen.page.locator(".ov-fold").first.click()
    expect(shown).to_have_count(lines)
    rows.focus()
    seen.page.keyboard.press("n")
    seen.page.wait_for_url("**trace=**")
    seen.silent()


def test_filters_stay_in_the_url_from_page_to_page(servers: dict[str, Site], opened: Open) -> None:
    site = servers["demo"]
    seen = opened().open(site, "verdict", service="vllm-server")
    seen.page.wait_for_function(
        """new Set([...document.querySelectorAll('.st-key-filters > *')].filter(part => part.offsetParent)
        .map(part => Math.round(part.getBoundingClientRect().bottom))).size === 1"""
    )
    seen.page.get_by_role("link", name="Which stage, and what slow requests do differently").click()
    seen.page.get_by_text("groups over budget").wait_for()
    seen.drawn(3).settle()
    seen.page.wait_for_url(lambda url: urlsplit(url).path == "/budget")
    query = urlsplit(seen.page.url).query
    assert "service=vllm-server" in query
    assert "slo=ttft" in query
    for link in (
        seen.page.get_by_role("link", name="Back to the verdict"),
        seen.page.get_by_role("link", name="Findings", exact=True),
    ):
        with seen.page.context.expect_page() as tab:
            link.click(modifiers=["Control"])
        shown = urlsplit(tab.value.url)
        tab.value.close()
        assert shown.path == ("/findings" if "Findings" in link.inner_text() else "/")
        assert dict(parse_qsl(shown.query)) == dict(parse_qsl(query))
    # A metric that a URL chose is not lost between pages.
    seen.open(site, "budget", metric="E2E").go("Traces", "traces")
    expect(seen.page.locator(".ov-box h1")).to_have_text(re.compile("^Slowest E2E"))
    seen.page.wait_for_url("**metric=E2E**")
    seen.silent()


def test_a_metric_that_nobody_chose_follows_the_verdict(
    servers: dict[str, Site], opened: Open
) -> None:
    """Also where what is judged changes while the page stands: by another limit, or in an incident that moves on."""
    seen = opened().open(servers["demo"], "budget", slo="ttft:1000 e2el:5000")
    metrics = seen.page.get_by_role("radiogroup", name="Metric")
    metrics.get_by_role("radio", name="TTFT", checked=True).wait_for()
    for slo, judged in (("ttft:1000000 e2el:5000", "E2E"), ("ttft:1000 e2el:5000", "TTFT")):
        seen.page.get_by_role("textbox", name="SLO").fill(slo)
        seen.page.keyboard.press("Enter")
        metrics.get_by_role("radio", name=judged, checked=True).wait_for()
        seen.settle()
        expect(seen.page).not_to_have_url(re.compile("metric="))
    seen.silent()


def test_the_incident_is_solved_in_four_clicks(servers: dict[str, Site], opened: Open) -> None:
    site = servers["demo"]
    finding = simulated(site)["findings"][0]
    seen = opened().open(site, "verdict")
    # Evidence, a request and the fix are one click away, in sight.
    for name in ("Evidence", "One such request", "Try it"):
        expect(seen.page.get_by_role("link", name=name, exact=True)).to_be_in_viewport()
    # A stage of the picture leads to its evidence, and one step back returns.
    stage = seen.page.get_by_role("link", name="queue").locator("visible=true").last
    stage.hover()
    tip = stage.evaluate("cell => getComputedStyle(cell, '::after').content")
    assert finding["headline"][:60] in tip.replace("\u00a0", " ")
    copied = seen.page.evaluate(
        """() => [...document.querySelectorAll("button.ov-copy")].map(button => {
            let written = ""
            navigator.clipboard.writeText = text => { written = text; return Promise.resolve() }
            button.click()
            return written })"""
    )
    assert copied[0].startswith("overrun whatif ")
    assert set(parse_qs(urlsplit(copied[1]).query)) == {"from", "to", "slo"}
    stage.click()
    seen.page.get_by_text("Exemplar 1").first.wait_for()
    seen.page.go_back()
    seen.page.locator(".ov-hero").wait_for()
    seen.page.get_by_role("link", name="See the evidence").click()
    seen.page.get_by_text("Exemplar 1").first.wait_for()
    seen.says(finding["headline"][1:])
    seen.page.get_by_role("link", name="Exemplar 1").first.click()
    seen.page.get_by_role("heading", name=f"Request {finding['exemplars'][0]}").wait_for()
    seen.page.locator(".ov-ink").first.wait_for(state="attached")
    fix = finding["fix"]  # two clicks from the verdict
    seen.says(f"{fix['title']}: predicted", say_ms(fix["predicted"]["after"]))
    link = seen.page.get_by_role("link", name="Try the fix")
    expect(link).to_have_attribute("href", re.compile(f"fix={fix['id']}"))
    seen.page.get_by_role("link", name="Back to the evidence").click()
    seen.page.get_by_text("Fix:").first.wait_for()
    seen.silent()


def _headline(seen: Watched) -> str:
    return str(seen.page.locator(".ov-box h1").first.inner_text()).replace("\u00a0", " ")


def test_a_slider_moves_the_prediction_and_stands_in_the_url(
    servers: dict[str, Site], opened: Open
) -> None:
    site = servers["demo"]
    seen = opened().open(site, "whatif", fix="clip", p_stage="queue", p_limit_ms="500")

    def predicted(limit_ms: str) -> str:
        answer = site.answer("whatif/clip", stage="queue", limit_ms=limit_ms, metric="ttft")
        return say_ms(answer["predicted"]["after"])

    headline = seen.page.locator(".ov-box h1").first
    expect(headline).to_contain_text(predicted("500"))
    handle = seen.page.get_by_role("slider").first
    handle.focus()
    handle.press("ArrowRight")
    seen.page.wait_for_url("**p_limit_ms=750**")
    seen.settle()
    expect(headline).to_contain_text(predicted("750"))
    _opens_the_same(opened(), seen)
    seen.silent()


def _opens_the_same(again: Watched, seen: Watched) -> None:
    """Whoever gets the address of a page sees the page."""
    seen.settle()
    again.page.goto(seen.page.url)
    again.page.wait_for_selector(".ov-box")
    until(lambda: again.text == seen.text, lambda: (again.text, seen.text))


def test_two_windows_are_picked_by_dragging(servers: dict[str, Site], opened: Open) -> None:
    site = servers["demo"]
    seen = opened().open(site, "compare").drawn(3)
    before = _headline(seen)
    seen.drag(0.05, 0.3, 0.45, 0.6)
    seen.page.wait_for_url("**after=**")
    query = parse_qs(urlsplit(seen.page.url).query)
    until(lambda: _headline(seen) != before)
    first = seen.page.get_by_label("A before").first.get_attribute("placeholder")
    before_after = {"before": query.get("before", [first])[0], "after": query["after"][0]}
    seen.says(site.answer("compare", **before_after)["sentence"])
    _opens_the_same(opened().open(site, "compare", after=query["after"][0]), seen)
    seen.silent()


def test_what_is_shown_can_be_taken_away(servers: dict[str, Site], opened: Open) -> None:
    site = servers["demo"]
    seen = opened().open(site, "traces")
    with seen.page.expect_download() as waiting:
        seen.page.get_by_role("button", name="These requests as CSV").click()
    with open(waiting.value.path(), newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trace id"] for row in rows] == [
        row["trace_id"] for row in site.answer("requests", sort="ttft", limit="200")["rows"]
    ]
    seen.drawn(1).page.locator(".js-plotly-plot").first.hover()
    with seen.page.expect_download() as waiting:
        seen.page.locator(".modebar-btn").first.click()
    assert Path(waiting.value.path()).read_bytes().startswith(b"\x89PNG")
    assert waiting.value.suggested_filename == "overrun-heat-ttft.png"


def test_hostile_filter_values_execute_nothing(servers: dict[str, Site], opened: Open) -> None:
    seen = opened().open(
        servers["hostile"], "verdict", service=HOSTILE[1], slo="<img src=x onerror=window.pwned=5>"
    )
    seen.says("refuses this question")
    seen.page.get_by_label("Service").click()
    seen.page.get_by_role("option").first.wait_for()
    seen.page.wait_for_timeout(200)  # what must not run would have run
    assert seen.page.evaluate("window.pwned") is None
    seen.silent()


def test_every_control_is_reached_with_the_keyboard(servers: dict[str, Site], opened: Open) -> None:
    seen = opened().open(servers["demo"], "verdict")
    seen.page.locator(".ov-hero").wait_for()
    reached = set()
    for _ in range(24):
        seen.page.keyboard.press("Tab")
        if seen.page.evaluate("document.activeElement.tagName") in ("A", "SUMMARY"):
            assert (
                seen.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                == "solid"
            )
        reached.add(
            seen.page.evaluate(
                "(e => (e.getAttribute('aria-label') || e.innerText || '').trim())(document.activeElement)"
            )
        )
    for name in ("Budget", "Traces", "SLO"):
        assert any(name in found for found in reached), (name, reached)


def test_the_incident_is_walked_with_the_keyboard_alone(
    servers: dict[str, Site], opened: Open
) -> None:
    site = servers["demo"]
    finding = simulated(site)["findings"][0]
    seen = opened().open(site, "verdict")
    seen.page.locator(".ov-hero").wait_for()
    _tab_to(seen, "See the evidence")
    seen.page.get_by_text("Exemplar 1").first.wait_for()
    seen.settle()
    _tab_to(seen, "Exemplar 1")
    seen.page.get_by_role("heading", name=f"Request {finding['exemplars'][0]}").wait_for()
    seen.drawn(1).settle()
    _tab_to(seen, "Critical path only")
    expect(seen.page.locator("[data-do=fold][aria-pressed=true]")).to_have_count(1)
    _tab_to(seen, "llm_request")
    expect(seen.page.locator(".ov-span[open]")).to_have_count(1)
    _tab_to(seen, "Try the fix")
    seen.page.wait_for_url("**/whatif?**")
    # Streamlit may take a choice out of the address that is the page's own default, so what is chosen is read off the page.
    seen.page.wait_for_function(
        """fix => [...document.querySelectorAll('[data-testid=stSelectbox]')].some(box => box.innerText.includes('Fix')
            && (box.innerText.includes(fix) || [...box.querySelectorAll('input')].some(field => field.value === fix)))""",
        arg=finding["fix"]["id"],
    )
    seen.silent()


def _tab_to(seen: Watched, name: str) -> None:
    """Tab on to what has this name, and press Enter."""
    held = """(e => !e.matches('a, button, summary') ? ''
        : (e.getAttribute('aria-label') || e.innerText))(document.activeElement)"""
    for _ in range(100):
        seen.page.keyboard.press("Tab")
        if name in seen.page.evaluate(held):
            seen.page.keyboard.press("Enter")
            return
    raise AssertionError(f"the key Tab does not reach {name}")


def test_a_server_that_hangs_leaves_no_empty_page(
    servers: dict[str, Site], empty_api: FakeApi, opened: Open
) -> None:
    """Grey places with a word on a page that is gone to, a line on one that stands; both go when the server answers."""
    seen = opened().open(servers["empty"], "verdict")
    late = seen.page.locator("#ov-late")
    with empty_api.lock:
        seen.page.get_by_role("textbox", name="SLO").fill("ttft:900")
        seen.page.keyboard.press("Enter")
        seen.page.locator("#ov-late.ov-line").wait_for()
        expect(late).to_contain_text("Waiting for the server")
    late.wait_for(state="detached")
    seen.settle()
    with empty_api.lock:
        seen.page.evaluate("history.pushState({}, '', '/health?since=6h')")
        seen.page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
        seen.page.locator("#ov-late.ov-empty").wait_for()
        seen.page.get_by_text("It has not answered for").wait_for()
    late.wait_for(state="detached")
    seen.page.locator(".ov-box").wait_for()
    seen.silent()


WATCH = """() => {
    const tiles = [...document.querySelectorAll('[data-testid=stMain] [data-testid=stHtml]')].filter(e => !e.querySelector('.ov-live'))
    window.marked = [...tiles, ...document.querySelectorAll('.js-plotly-plot')]
    window.faintest = 1
    const look = () => {
        for (let e of window.marked) for (; e && e.dataset?.testid !== 'stApp'; e = e.parentElement)
            window.faintest = Math.min(window.faintest, parseFloat(getComputedStyle(e).opacity))
        window.watching = requestAnimationFrame(look)
    }
    look()
}"""


def _badge_moves(seen: Watched, times: int) -> None:
    for _ in range(times):
        before = seen.page.locator(".ov-live").inner_text()
        seen.page.wait_for_function(
            "t => document.querySelector('.ov-live')?.innerText !== t", arg=before
        )


def test_tiles_follow_the_clock_without_flicker(servers: dict[str, Site], opened: Open) -> None:
    live = replace(servers["demo"], window={"since": "15m", "service": "followed"})
    send_made(live.api, timedelta(seconds=60), 5, ["followed"])
    settled(live.api)
    seen = opened().open(live, "verdict")
    seen.says("5 requests")
    expect(seen.page.locator(".ov-live")).to_contain_text("newest request")
    seen.page.evaluate(WATCH)
    _badge_moves(seen, 2)  # ten seconds in which only the badge lives
    send_made(live.api, timedelta(seconds=40), 3, ["followed"])
    settled(live.api)
    seen.page.get_by_text(re.compile(r"\b8 requests")).first.wait_for()
    assert seen.page.evaluate("window.marked.every(e => e.isConnected)")
    assert seen.page.evaluate("window.faintest") == 1
    seen.silent()


def test_charts_stay_while_nothing_moves_and_a_choice_pauses_the_page(
    servers: dict[str, Site], opened: Open
) -> None:
    live = replace(servers["demo"], window={"since": "15m", "service": "chosen"})
    send_made(live.api, timedelta(seconds=200), 2, ["chosen"])
    settled(live.api)
    chosen = live.answer("requests")["rows"][0]["trace_id"]
    seen = opened().open(live, "traces").drawn(1)
    seen.page.evaluate(WATCH)
    _badge_moves(seen, 1)
    assert seen.page.evaluate("window.marked.length && window.marked.every(e => e.isConnected)")
    assert seen.page.evaluate("window.faintest") == 1
    seen.open(live, "traces", trace=chosen)
    seen.page.get_by_text("2 of 2 requests listed").wait_for()
    send_made(live.api, timedelta(seconds=20), 2, ["chosen"])
    settled(live.api)
    seen.page.get_by_text("new data available").wait_for()
    expect(seen.page.locator(".ov-live")).to_contain_text("while a trace is chosen")
    seen.says("2 of 2 requests listed")
    seen.page.get_by_role("button", name="Show the new data").click()
    seen.page.get_by_text(re.compile("of the 4 listed|4 of 4 requests listed")).wait_for()
    seen.page.wait_for_url(f"**trace={chosen}**")
    seen.silent()


# --- every page over every kind of data: no complaint, nothing asked of another machine, nothing executed, in both looks and all widths ---

_PHONE = 390


@pytest.mark.parametrize(
    "held", ["demo", "hostile", "one", "metrics-missing", "client-only", "empty"]
)
def test_every_page_of_every_data_set_is_drawn_in_silence_light_and_dark(
    servers: dict[str, Site], opened: Open, held: str
) -> None:
    site, looks = servers[held], ("light", "dark")
    twice = held in ("demo", "hostile")  # of the others, one page is seen light and the next dark
    # The one page that is loaded and not gone to: with a fix that needs no engine to be fitted first.
    seen = opened().still().open(site, "whatif", fix="clip", p_stage="queue", p_limit_ms="500")
    for number, place in enumerate(sorted(nav.PLACES, key=lambda place: place.name != "whatif")):
        if number:
            seen.go(place.title, "" if place.name == "verdict" else place.name)
        # A page begins in the look in which the last one was left.
        for turn, look in enumerate(looks if number % 2 == 0 else looks[::-1]):
            if turn:
                seen.turn(look)
            if turn or twice:
                _sound(seen, place.name, look)
        if held == "empty" and place.name != "length":
            seen.says("Waiting for the first span", f"OTEL_EXPORTER_OTLP_ENDPOINT={site.api}")
            if held == "demo":  # the other look differs by its colours alone
                dark = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
                seen.accessible(**(dark if look == "dark" else {}))
        if held == "demo":
            _fits(seen, place.name)
    seen.silent()


def _fits(seen: Watched, page: str) -> None:
    """A page is as wide as a phone or a large screen, and what is wider scrolls inside of it."""
    now = seen.page.viewport_size["width"]
    for width in (now, _PHONE, 1920 if now == 1280 else 1280):
        seen.page.set_viewport_size({"width": width, "height": 900})
        seen.page.wait_for_function("w => document.scrollingElement.clientWidth === w", arg=width)
        # What is wider now may still be shrinking: what counts is that it ends inside.
        seen.page.wait_for_function(
            """w => [...document.querySelectorAll('[data-testid=stMain] .ov *')]
            .filter(e => !e.closest('.ov-scroll, .ov-rows, .ov-bar, pre')).every(e => e.getBoundingClientRect().right <= w + 1)
            && document.querySelector('[data-testid=stMain]').scrollWidth <= w""",
            arg=width,
        )
        if width == _PHONE:  # every column is in sight, whatever it is called
            seen.page.wait_for_function(
                "[...document.querySelectorAll('.ov-scroll')].every(e => e.scrollWidth <= e.clientWidth)"
            )
            seen.accessible(rules={"color-contrast": {"enabled": False}})
        sizes = seen.page.evaluate(
            "[...document.querySelectorAll('.ov p, .ov td, .ov dd, .ov small')].map(e => parseFloat(getComputedStyle(e).fontSize))"
        )
        assert min(sizes) >= 12, page


def _sound(seen: Watched, page: str, look: str) -> None:
    """A page states something in its look, shows no error, says its charts in words, and ran nothing that was sent."""
    theme = {"light": LIGHT, "dark": DARK}[look]
    colours = [
        f"rgb({int(code[1:3], 16)}, {int(code[3:5], 16)}, {int(code[5:7], 16)})"
        for code in (theme.background, theme.ink, theme.over)
    ]
    # A page without charts has nothing else to wait for when the machine turns dark or light.
    seen.page.wait_for_function(
        "colour => getComputedStyle(document.querySelector('.stApp')).backgroundColor === colour",
        arg=colours[0],
    )
    headline = seen.page.locator(".ov-box h1").first
    expect(headline).to_have_css("color", re.compile("|".join(map(re.escape, colours[1:]))))
    # A chart whose data has just moved is drawn anew; what counts is that each ends in the look, with its words.
    seen.charts_are(theme.background)
    expect(headline).not_to_be_empty()
    assert (
        seen.page.locator(
            '[data-testid="stException"], [data-testid="stAlert"], [role=alert]'
        ).count()
        == 0
    ), (page, seen.text[:500])
    assert seen.page.evaluate("window.pwned") is None
    assert seen.page.evaluate("getComputedStyle(document.body).display") != "none"
    assert (
        seen.page.locator(
            "img[src='x'], [data-testid=stMain] script, a[href^='javascript']"
        ).count()
        == 0
    )
    assert all(
        alt
        for alt in seen.page.eval_on_selector_all(
            "[data-testid=stMain] img", "list => list.map(i => i.alt)"
        )
    )
