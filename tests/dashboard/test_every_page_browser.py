"""Every page over every kind of data in a real browser: no complaint, nothing asked of another machine, nothing executed, in both looks and all widths."""

import pytest

from dashboard import nav
from dashboard.theme import DARK, LIGHT
from tests.dashboard.watched import Open, Site, Watched

_PHONE = 390


@pytest.mark.parametrize("held", ["demo", "hostile", "one", "metrics-missing", "client-only", "empty"])
def test_every_page_of_every_data_set_is_drawn_in_silence_light_and_dark(servers: dict[str, Site], opened: Open, held: str) -> None:
    site, looks = servers[held], ("light", "dark")
    # The one page that is loaded and not gone to: with a fix that needs no engine to be fitted first.
    seen = opened().still().open(site, "whatif", fix="clip", p_stage="queue", p_limit_ms="500")
    for number, place in enumerate(sorted(nav.PLACES, key=lambda place: place.name != "whatif")):
        if number:
            seen.go(place.title, "" if place.name == "verdict" else place.name)
        # A page begins in the look in which the last one was left.
        for turn, look in enumerate(looks if number % 2 == 0 else looks[::-1]):
            if turn:
                seen.turn(look)
            _sound(seen, place.name, look)
        if held == "empty" and place.name != "length":
            assert "Waiting for the first span" in seen.text
            seen.page.get_by_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={site.api}").first.wait_for()
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
        seen.page.wait_for_function("""w => [...document.querySelectorAll('[data-testid=stMain] .ov *')]
            .filter(e => !e.closest('.ov-scroll, .ov-rows, .ov-bar, pre')).every(e => e.getBoundingClientRect().right <= w + 1)
            && document.querySelector('[data-testid=stMain]').scrollWidth <= w""", arg=width)
        if width == _PHONE:  # every column is in sight, whatever it is called
            seen.page.wait_for_function("[...document.querySelectorAll('.ov-scroll')].every(e => e.scrollWidth <= e.clientWidth)")
        sizes = seen.page.evaluate("[...document.querySelectorAll('.ov p, .ov td, .ov dd, .ov small')].map(e => parseFloat(getComputedStyle(e).fontSize))")
        assert min(sizes) >= 12, page


def _sound(seen: Watched, page: str, look: str) -> None:
    """A page states something in its look, shows no error, says its charts in words, and ran nothing that was sent."""
    theme = {"light": LIGHT, "dark": DARK}[look]
    colours = [f"rgb({int(code[1:3], 16)}, {int(code[3:5], 16)}, {int(code[5:7], 16)})" for code in (theme.background, theme.ink, theme.over)]
    # A page without charts has nothing else to wait for when the machine turns dark or light.
    seen.page.wait_for_function("colour => getComputedStyle(document.querySelector('.stApp')).backgroundColor === colour", arg=colours[0])
    assert seen.page.evaluate("getComputedStyle(document.querySelector('.ov-box h1')).color") in colours[1:], page
    # A chart whose data has just moved is drawn anew; what counts is that each ends in the look, with its words.
    seen.charts_are(theme.background)
    assert seen.page.locator(".ov-box h1").first.inner_text(), page
    assert seen.page.locator('[data-testid="stException"], [data-testid="stAlert"], [role=alert]').count() == 0, (page, seen.text[:500])
    assert seen.page.evaluate("window.pwned") is None
    assert seen.page.evaluate("getComputedStyle(document.body).display") != "none"
    assert seen.page.locator("img[src='x'], [data-testid=stMain] script, a[href^='javascript']").count() == 0
    assert all(alt for alt in seen.page.eval_on_selector_all("[data-testid=stMain] img", "list => list.map(i => i.alt)"))
