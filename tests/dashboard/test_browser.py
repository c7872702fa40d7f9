"""The dashboard in a real browser: what the page shows is what the API says, nothing leaves the machine, nothing that is sent runs."""

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from dashboard import nav
from dashboard.theme import say_ms, say_ratio
from tests.dashboard.conftest import HOSTILE, Site

PAGES = [place.name for place in nav.PLACES]
LOOKS = pytest.mark.parametrize("look", ["light", "dark"])
EVERY = pytest.mark.parametrize("page", PAGES)


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
        self.page.wait_for_selector(".ov-box", timeout=15_000)
        self.settle()
        return self

    def settle(self) -> None:
        self.page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=15_000)

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
    table = seen.page.locator('[data-testid="stDataFrame"]').bounding_box()
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


@LOOKS
@EVERY
def test_an_empty_store_waits_for_its_first_span(servers: dict[str, Site], opened: Open, page: str, look: str) -> None:
    site = servers["empty"]
    seen = opened(look).open(site, page)
    assert "Waiting for the first span" in seen.text
    seen.page.get_by_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={site.api}").first.wait_for(timeout=15_000)
    seen.silent()


@LOOKS
@EVERY
def test_hostile_names_execute_nothing(servers: dict[str, Site], opened: Open, page: str, look: str) -> None:
    seen = opened(look).open(servers["hostile"], page)
    if page in ("budget", "traces"):
        seen.drawn(1)
    seen.page.wait_for_timeout(300)
    assert seen.page.evaluate("window.pwned") is None
    assert seen.page.evaluate("getComputedStyle(document.body).display") != "none"
    assert seen.page.locator("img[src='x'], [data-testid=stMain] script, a[href^='javascript']").count() == 0
    if page == "traces":
        assert "</style><style>" in seen.text  # the slowest request's name, as text
    seen.silent()


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
