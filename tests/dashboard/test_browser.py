"""The dashboard in a real browser: what the page shows is what the API says, nothing leaves the machine, nothing that is sent runs."""

import csv
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from dashboard import nav
from dashboard.theme import say_ms, say_ratio
from tests.dashboard.conftest import HOSTILE, Site

LOOKS = pytest.mark.parametrize("look", ["light", "dark"])


class Watched:
    """A page in the browser, and all that it asked for and complained of."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.hosts: set[str] = set()
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname or urlsplit(request.url).scheme))
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("websocket", lambda socket: self.hosts.add(urlsplit(socket.url).hostname))

    def _heard(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} {message.location}")

    def open(self, site: Site, page: str, **query: str) -> "Watched":
        """Go there and wait until the page is drawn."""
        self.page.goto(f"{site.url}/{'' if page == 'verdict' else page}?{urlencode(site.window | query)}")
        self.page.wait_for_selector(".ov-box", timeout=30_000)
        self.settle()
        return self

    def go(self, title: str, name: str) -> None:
        """Go to another page by the navigation, as a person does."""
        self.page.get_by_role("link", name=title, exact=True).first.click()
        self.page.wait_for_url(f"**/{name}**", timeout=15_000)
        self.page.wait_for_timeout(100)
        self.settle()
        self.page.wait_for_selector(".ov-box", timeout=30_000)
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=30_000)

    def drawn(self, charts: int) -> "Watched":
        """Wait until so many charts stand."""
        self.page.wait_for_function("n => document.querySelectorAll('.js-plotly-plot .xaxislayer-above').length >= n", arg=charts, timeout=15_000)
        return self

    @property
    def text(self) -> str:
        return str(self.page.inner_text('[data-testid="stMain"]'))

    def silent(self) -> None:
        """Nothing but this machine was asked, and nothing was complained of."""
        assert self.hosts <= {"127.0.0.1", "data", "blob"}
        assert self.complaints == []


Open = Callable[..., Watched]


@pytest.fixture
def opened(contexts: dict[str, Any]) -> Iterator[Open]:
    """Open a page in the light or dark profile; closed at the end of the test."""
    made: list[Watched] = []

    def new(look: str = "light") -> Watched:
        made.append(Watched(contexts[look]))
        return made[-1]

    yield new
    for watched in made:
        watched.page.close()


@LOOKS
def test_the_verdict_is_the_apis(servers: dict[str, Site], opened: Open, look: str) -> None:
    site = servers["demo"]
    report = site.answer("report")
    seen = opened(look).open(site, "verdict")
    text = " ".join(seen.text.split())
    assert report["verdict"]["sentence"] in text
    for metric in ("ttft", "e2e"):
        stats = report["latency"][f"{metric}_ms"]
        assert {say_ms(stats[name]) for name in ("p50", "p95", "p99")} <= set(re.findall(r"[\d.]+ m?s", text))
    assert say_ratio(report["goodput"]["ratio"]) in text
    assert f"{report['window']['requests']:,} requests" in text
    background = seen.page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if look == "light" else "rgb(14, 17, 23)")
    assert seen.page.locator(".js-plotly-plot").count() == 0
    assert all(alt for alt in seen.page.eval_on_selector_all("img", "list => list.map(i => i.alt)"))
    seen.silent()


@LOOKS
def test_the_budget_is_the_apis(servers: dict[str, Site], opened: Open, look: str) -> None:
    site = servers["demo"]
    stages, cells = site.answer("stages"), site.answer("heatmap", metric="ttft")
    seen = opened(look).open(site, "budget").drawn(3)
    over = [row for row in stages["stages"] if row["over"]]
    for row in over:
        assert f"{say_ms(row['tail_ms'])} of {say_ms(row['budget_ms'])}" in seen.text
    assert f"{say_ms(stages['typical_ms'])} +{say_ms(stages['slow_ms'] - stages['typical_ms'])} = {say_ms(stages['slow_ms'])}" in seen.text
    drawn = seen.page.evaluate("[...document.querySelectorAll('.js-plotly-plot')].map(p => p.data)")
    assert drawn[1][0]["y"][-1] == pytest.approx(stages["slow_ms"])
    assert drawn[2][0]["customdata"] == cells["counts"]
    assert seen.page.locator('[aria-label*="Waterfall from"], [alt*="Waterfall from"]').count() >= 1
    seen.silent()


@LOOKS
def test_traces_lead_to_one_request(servers: dict[str, Site], opened: Open, look: str) -> None:
    site = servers["demo"]
    rows = site.answer("requests", sort="ttft")["rows"]
    seen = opened(look).open(site, "traces").drawn(1)
    assert say_ms(rows[0]["ttft_ms"]) in seen.text
    assert rows[0]["trace_id"] in seen.text
    # The table is a canvas: the third row's box, as a person would click it.
    grid = seen.page.locator('[data-testid="stDataFrame"]')
    grid.locator("canvas").first.wait_for(timeout=15_000)
    grid.scroll_into_view_if_needed()
    seen.page.wait_for_timeout(500)
    table = grid.bounding_box()
    seen.page.mouse.click(table["x"] + 18, table["y"] + 36 + 2.5 * 35)
    seen.page.get_by_role("heading", name=f"Request {rows[2]['trace_id']}").wait_for(timeout=15_000)
    seen.page.wait_for_url(f"**trace={rows[2]['trace_id']}**")
    seen.page.get_by_label("Trace id").fill(rows[5]["trace_id"])
    seen.page.keyboard.press("Enter")
    seen.page.get_by_role("heading", name=f"Request {rows[5]['trace_id']}").wait_for(timeout=15_000)
    seen.settle()
    assert rows[5]["trace_id"] in seen.page.url
    assert say_ms(rows[5]["e2e_ms"]) in seen.text
    seen.silent()


def test_a_box_on_the_heat_map_narrows_the_list(servers: dict[str, Site], opened: Open) -> None:
    seen = opened().open(servers["demo"], "traces").drawn(1)
    box = seen.page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    seen.page.mouse.move(box["x"] + 0.05 * box["width"], box["y"] + 0.45 * box["height"])
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + 0.35 * box["width"], box["y"] + 0.98 * box["height"], steps=8)
    seen.page.mouse.up()
    seen.page.get_by_text("In the box:").wait_for(timeout=15_000)
    seen.settle()
    again = opened().open(servers["demo"], "traces", box=parse_qs(urlsplit(seen.page.url).query)["box"][0])
    assert re.findall(r"In the box: .*", again.text) == re.findall(r"In the box: .*", seen.text)
    found = re.search(r"In the box: .*: ([\d,]+) requests", seen.text)
    assert found
    assert 0 < int(found[1].replace(",", "")) < 1499
    seen.silent()


def test_filters_stay_in_the_url_from_page_to_page(servers: dict[str, Site], opened: Open) -> None:
    site = servers["demo"]
    seen = opened().open(site, "verdict", service="vllm-server")
    seen.page.get_by_role("link", name="Which stage, and what slow requests do differently").click()
    seen.page.get_by_text("groups over budget").wait_for(timeout=15_000)
    seen.drawn(3).settle()
    query = urlsplit(seen.page.url).query
    assert urlsplit(seen.page.url).path == "/budget"
    assert "service=vllm-server" in query
    assert "slo=ttft" in query
    seen.silent()


@pytest.mark.parametrize(("held", "look"), [
    *((held, "light") for held in ("demo", "hostile", "one", "metrics-missing", "client-only", "empty")),
    *((held, "dark") for held in ("demo", "hostile", "empty"))])
def test_every_page_of_every_data_set_is_drawn_in_silence(servers: dict[str, Site], opened: Open, held: str, look: str) -> None:
    site = servers[held]
    seen = opened(look).open(site, "verdict")
    for place in nav.PLACES:
        if place.name == "whatif":
            continue  # below, with a fix that needs no engine to be fitted first
        if place.name != "verdict":
            seen.go(place.title, place.name)
        _sound(seen, place.name)
        if held == "empty" and place.name != "length":
            assert "Waiting for the first span" in seen.text
            seen.page.get_by_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={site.api}").first.wait_for(timeout=15_000)
    seen.open(site, "whatif", fix="clip", p_stage="queue", p_limit_ms="500")
    _sound(seen, "whatif")
    seen.silent()


def _sound(seen: Watched, page: str) -> None:
    """A page states something, shows no error, and ran nothing that was sent."""
    assert seen.page.locator(".ov-box h1").first.inner_text(), page
    assert seen.page.locator('[data-testid="stException"], [data-testid="stAlert"], [role=alert]').count() == 0, (page, seen.text[:500])
    assert seen.page.evaluate("window.pwned") is None
    assert seen.page.evaluate("getComputedStyle(document.body).display") != "none"
    assert seen.page.locator("img[src='x'], [data-testid=stMain] script, a[href^='javascript']").count() == 0
    assert all(alt for alt in seen.page.eval_on_selector_all("[data-testid=stMain] img", "list => list.map(i => i.alt)"))


def test_the_incident_is_solved_in_four_clicks(servers: dict[str, Site], opened: Open) -> None:
    site = servers["demo"]
    finding = site.answer("report")["findings"][0]
    seen = opened().open(site, "verdict")
    seen.page.get_by_role("link", name="See the evidence").click()
    seen.page.get_by_text("Exemplar 1").first.wait_for(timeout=15_000)
    assert finding["headline"] in " ".join(seen.text.split())
    seen.page.get_by_role("link", name="Exemplar 1").first.click()
    seen.page.get_by_role("heading", name=f"Request {finding['exemplars'][0]}").wait_for(timeout=15_000)
    assert seen.page.locator(".ov-ink").count() >= 1
    seen.page.get_by_role("link", name="Findings", exact=True).click()
    seen.page.get_by_text("Fix:").first.wait_for(timeout=15_000)
    seen.settle()
    predicted = finding["fix"]["predicted"]
    assert say_ms(predicted["after"]) in seen.text
    assert "predicted" in seen.text
    seen.silent()


def test_a_slider_moves_the_prediction_and_stands_in_the_url(servers: dict[str, Site], opened: Open) -> None:
    site = servers["demo"]
    seen = opened().open(site, "whatif", fix="clip", p_stage="queue", p_limit_ms="500")
    before = seen.page.locator(".ov-box h1").first.inner_text()
    assert say_ms(site.answer("whatif/clip", stage="queue", limit_ms="500", metric="ttft")["predicted"]["after"]) in before
    handle = seen.page.get_by_role("slider").first
    handle.focus()
    handle.press("ArrowRight")
    seen.page.wait_for_url("**p_limit_ms=750**", timeout=15_000)
    seen.settle()
    wanted = say_ms(site.answer("whatif/clip", stage="queue", limit_ms="750", metric="ttft")["predicted"]["after"])
    seen.page.locator(".ov-box h1", has_text=wanted).first.wait_for(timeout=15_000)
    seen.silent()


def test_what_is_shown_can_be_taken_away(servers: dict[str, Site], opened: Open) -> None:
    site = servers["demo"]
    seen = opened().open(site, "traces")
    with seen.page.expect_download() as waiting:
        seen.page.get_by_role("button", name="These requests as CSV").click()
    with open(waiting.value.path(), newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trace id"] for row in rows] == [row["trace_id"] for row in site.answer("requests", sort="ttft", limit="200")["rows"]]


def test_hostile_filter_values_execute_nothing(servers: dict[str, Site], opened: Open) -> None:
    seen = opened().open(servers["hostile"], "verdict", service=HOSTILE[1], slo="<img src=x onerror=window.pwned=5>")
    assert "refuses this question" in seen.text
    seen.page.get_by_label("Service").click()
    seen.page.get_by_role("option").first.wait_for(timeout=10_000)
    seen.page.wait_for_timeout(200)
    assert seen.page.evaluate("window.pwned") is None
    seen.silent()


def test_every_control_is_reached_with_the_keyboard(servers: dict[str, Site], opened: Open) -> None:
    seen = opened().open(servers["demo"], "verdict")
    reached = set()
    for _ in range(24):
        seen.page.keyboard.press("Tab")
        reached.add(seen.page.evaluate("(e => (e.getAttribute('aria-label') || e.innerText || '').trim())(document.activeElement)"))
    for name in ("Budget", "Traces", "SLO"):
        assert any(name in found for found in reached), (name, reached)
