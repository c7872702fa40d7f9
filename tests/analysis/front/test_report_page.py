"""The report as a file: whole, escaped, and nothing in it reaches for a network."""

import re
from html.parser import HTMLParser

import pytest

from overrun.analysis.front.report import Report, build
from overrun.analysis.front.report_page import to_html, to_markdown
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import DEFAULT, parse_slo
from tests.analysis.builders import insert, requests, store, vllm_gauges, vllm_spans

HOSTILE = (
    '<script src="https://evil.example/x.js">alert(1)</script>![x](https://evil.example/i.png)|`_*'
)


@pytest.fixture(scope="module")
def overloaded() -> Report:
    con = store()
    insert(con, vllm_spans())
    vllm_gauges(con)
    return build(con.cursor(), Window(), parse_slo("ttft:1000 e2el:5000"))


@pytest.fixture(scope="module")
def hostile() -> Report:
    con = store()
    insert(
        con,
        requests(
            100,
            prefill_ms=9_000.0,
            ttft_ms=9_000.0,
            route=HOSTILE,
            service=HOSTILE,
            model=HOSTILE,
            tenant=HOSTILE,
            version=HOSTILE,
        ),
    )
    return build(con, Window(), DEFAULT)


class Tags(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, list[str]] = {}
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")


def test_page_has_the_verdict_the_numbers_and_every_check(overloaded: Report) -> None:
    document = to_html(overloaded)
    assert document.startswith("<!doctype html>")
    assert "OVER BUDGET" in document
    assert "under_capacity" in document
    assert all(check.check in document for check in overloaded.data_quality)
    assert Tags(document).tags.count("table") >= 3


@pytest.mark.parametrize("which", ["overloaded", "hostile"])
def test_page_loads_and_runs_nothing(which: str, request: pytest.FixtureRequest) -> None:
    document = to_html(request.getfixturevalue(which))
    seen = Tags(document)
    assert not {"script", "img", "link", "iframe", "object", "a", "form"} & set(seen.tags)
    assert not {"src", "href", "onload", "onerror"} & set(seen.attributes)
    assert "url(" not in document
    assert "default-src 'none'" in document


def test_names_from_telemetry_are_escaped(hostile: Report) -> None:
    assert "&lt;script" in to_html(hostile)
    text = to_markdown(hostile)
    assert "<script" not in text
    assert not re.search(r"(?<!\\)!\[x\]\(", text)


def test_markdown_has_the_verdict_tables_and_doubts(overloaded: Report) -> None:
    text = to_markdown(overloaded)
    assert text.startswith("## OVER BUDGET (2026-11-20T10:00:00Z to ")
    assert "| TTFT | 1,499 |" in text
    assert "### Data quality: 1 to look at" in text


def test_empty_store_gives_both() -> None:
    empty = build(store(), Window(), DEFAULT)
    assert "NO DATA" in to_html(empty)
    assert "NO DATA" in to_markdown(empty)
