"""A page in a real browser, with what it asked and complained of."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import TimeoutError, expect

from overrun.dashboard.theme import DARK, LIGHT
from tests.waiting import LIMIT_S, until

_AXE = Axe()
expect.set_options(timeout=1_000 * LIMIT_S)


@dataclass(frozen=True)
class Site:
    """A dashboard with its server; `window` is the query that shows what the server holds."""

    url: str
    api: str
    window: dict[str, str]

    def answer(self, path: str, **more: str) -> Any:
        """What the API says about the window, as JSON."""
        return (
            httpx.get(
                f"{self.api}/api/v1/{path}", params=self.window | more, trust_env=False, timeout=60
            )
            .raise_for_status()
            .json()
        )


class Watched:
    """A page in the browser, and all that it asked for and complained of."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.hosts: set[str] = set()
        self.complaints: list[str] = []
        self.page.on(
            "request",
            lambda request: self.hosts.add(
                urlsplit(request.url).hostname or urlsplit(request.url).scheme
            ),
        )
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("websocket", lambda socket: self.hosts.add(urlsplit(socket.url).hostname))

    def _heard(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} {message.location}")

    def open(self, site: Site, page: str, **query: str) -> "Watched":
        """Go there and wait until the page is drawn."""
        self.page.goto(
            f"{site.url}/{'' if page == 'verdict' else page}?{urlencode(site.window | query)}"
        )
        self.page.wait_for_selector(".ov-box")
        self.settle()
        return self

    def still(self) -> "Watched":
        """Nothing fades or slides on the pages that are opened from now on: drawing that took nearly half of the browser's time."""
        self.page.add_init_script("""addEventListener('DOMContentLoaded', () => {
            const style = document.createElement('style')
            style.textContent = '*, *::before, *::after {transition: none !important; animation: none !important}'
            document.head.append(style)
        })""")
        return self

    def go(self, title: str, name: str) -> None:
        """Go to another page by the navigation, as a person does, and wait until it is drawn in the place of this one."""
        self.page.eval_on_selector_all(
            ".ov-box", "boxes => boxes.forEach(box => { box.dataset.before = 'yes' })"
        )
        self.page.get_by_role("link", name=title, exact=True).first.click()
        self.page.wait_for_url(f"**/{name}**")
        self.page.wait_for_selector(".ov-box:not([data-before])")
        self.settle()

    def drag(self, left: float, right: float, top: float, bottom: float) -> None:
        """Draw a box on the first chart; the corners are shares of its area."""
        self.draw(self.page.locator(".js-plotly-plot .nsewdrag").first, left, right, top, bottom)

    def draw(self, place: Any, left: float, right: float, top: float, bottom: float) -> None:
        """Press at one corner of a box on `place`, once that stands still, and let go at the other; the corners are shares of it."""
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        place.hover(position={"x": left * box["width"], "y": top * box["height"]})
        box = place.bounding_box()
        self.page.mouse.down()
        self.page.mouse.move(
            box["x"] + right * box["width"], box["y"] + bottom * box["height"], steps=8
        )
        self.page.mouse.up()

    def turn(self, look: str) -> None:
        """The machine turns dark or light: the page follows at once, its charts when it is drawn anew (R is Streamlit's key for that)."""
        self.settle()
        self.page.emulate_media(color_scheme=look)
        self.page.evaluate("document.activeElement.blur()")
        for _ in range(6):  # a page that is just being drawn does not hear the key
            self.page.keyboard.press("r")
            with suppress(TimeoutError):
                self.charts_are({"light": LIGHT, "dark": DARK}[look].background, timeout=10_000)
                break
        self.settle()

    def charts_are(self, background: str, timeout: float | None = None) -> None:
        """Every place of a chart holds one, in that look, with its words; the program for charts may still be on its way when the page has ended."""
        self.page.wait_for_function(
            """background => [...document.querySelectorAll('[data-testid=stPlotlyChart], [data-testid=stSkeleton]')].every(place => {
            const chart = place.querySelector('.js-plotly-plot')
            return chart?.layout?.paper_bgcolor === background && chart.parentElement.ariaLabel
        })""",
            arg=background,
            timeout=timeout,
        )

    def settle(self) -> None:
        self.page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')

    def drawn(self, charts: int) -> "Watched":
        """Wait until so many charts stand."""
        self.page.wait_for_function(
            "n => document.querySelectorAll('.js-plotly-plot .xaxislayer-above').length >= n",
            arg=charts,
        )
        return self

    @property
    def text(self) -> str:
        return str(self.page.inner_text('[data-testid="stMain"]')).replace("\u00a0", " ")

    def says(self, *words: str) -> "Watched":
        """Wait until the page has all of these words, however they are spaced."""

        def all_there() -> bool:
            text = " ".join(self.text.split())
            missing[:] = [one for one in words if " ".join(one.split()) not in text]
            return not missing

        missing: list[str] = []
        until(all_there, lambda: (missing, self.text[:500]))
        return self

    def accessible(self, **options: Any) -> None:
        """axe finds nothing against WCAG or its own good practice; `options` are those of `axe.run`."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(_AXE.axe_script)
        asked = {"resultTypes": ["violations"], **options}

        def sound() -> bool:
            found = self.page.evaluate("options => axe.run(document, options)", asked)
            broken[:] = [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]]
            return not broken

        broken: list[tuple[str, str]] = []
        until(sound, lambda: broken)  # a chart may be on its way to another width

    def silent(self) -> None:
        """Nothing but this machine was asked, and nothing was complained of."""
        assert self.hosts <= {"127.0.0.1", "data", "blob"}
        assert self.complaints == []


Open = Callable[..., Watched]
