"""What stands on the page before the program has loaded: the page's own first box, for those who may see the page, and nothing that runs."""

import asyncio
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from overrun.analysis.front import report as reports
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import parse_slo
from overrun.dashboard import anchors, data, first_paint, login, nav, ui
from overrun.dashboard.views import verdict
from tests.analysis.builders import at, insert, requests, store, vllm_spans
from tests.dashboard.fake_api import FakeApi, fake_api
from tests.dashboard.test_pages import HOSTILE, SLO, WINDOW

# The program's page under our name, with what makes its links whole.
PLAIN_PAGE = f"<html><head><title>Overrun</title></head><body><div id=root></div>{anchors.SCRIPT}{anchors.PICTURES}</body></html>"
EMPTY_PAGE = b"<html><head><title>Streamlit</title></head><body><div id=root></div></body></html>"
PAGES = [place.name for place in nav.PLACES]


@pytest.fixture(scope="module")
def demo() -> Iterator[FakeApi]:
    con = store()
    insert(con, vllm_spans())
    with fake_api(con) as api:
        yield api


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    data.forget()
    monkeypatch.setattr(data, "ahead", lambda *answers: None)  # no thread outlives its test
    monkeypatch.setattr(
        first_paint.st,
        "get_option",
        lambda name: ["127.0.0.1", "[::1]"] if name == "server.allowedHosts" else None,
    )


def asked(
    path: str, query: str = "", host: str = "127.0.0.1:8501"
) -> tuple[int, dict[str, str], str]:
    """What a browser gets: status, headers, body."""
    sent: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        # A compressed page could not be written on.
        assert login.wanted() or b"accept-encoding" not in dict(scope["headers"])
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"%d" % len(EMPTY_PAGE)), (b"etag", b"x")],
            }
        )
        await send({"type": "http.response.body", "body": EMPTY_PAGE[:40], "more_body": True})
        await send({"type": "http.response.body", "body": EMPTY_PAGE[40:]})

    async def keep(message: Any) -> None:
        sent.append(message)

    headers_in = [(b"host", host.encode()), (b"accept-encoding", b"gzip")]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": headers_in,
    }
    asyncio.run(first_paint.FirstAnswer(behind)(scope, None, keep))  # type: ignore[arg-type]
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(message["body"] for message in sent[1:]).decode()


class Tags(HTMLParser):
    """Every tag with its attributes."""

    def __init__(self, body: str) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()
        self.feed(body)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {(tag, name) for name, _ in attrs} or {(tag, "")}


def test_an_address_leads_to_the_box_that_the_page_will_draw(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERRUN_URL", demo.url)
    status, headers, page = asked(
        "/",
        f"from={WINDOW['from']}&to={WINDOW['to']}&slo={SLO}".replace(":", "%3A").replace(
            " ", "%20"
        ),
    )
    assert status == 200
    assert headers["content-length"] == str(len(page.encode()))
    assert "etag" not in headers
    assert "<title>Overrun</title>" in page
    ask = re.search(r'fetch\("([^"]+)"', page)
    assert ask
    assert f"<{ask[1]}>; rel=preload" in headers["link"]
    # What stands there while the server keeps the page waiting.
    assert f"{demo.url} has not answered for 5 s." in page
    assert dict(parse_qsl(urlsplit(ask[1]).query)) == WINDOW
    status, headers, body = asked(urlsplit(ask[1]).path, urlsplit(ask[1]).query)
    report = reports.build(demo.con.cursor(), Window(start=at(0), end=at(150)), parse_slo(SLO))
    drawn = ui.whole(verdict.verdict_box(report, first_paint.theme.LIGHT)).replace(
        "ov-box", "ov-lead"
    )
    assert (status, body) == (200, f'<div class="ov">{drawn}</div>')
    assert ui.whole(verdict.headline(report)) in body
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("page", PAGES)
def test_hostile_names_are_text(monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    con = store()
    insert(
        con,
        requests(
            140,
            retrieval_ms=9000.0,
            ttft_retrieval_ms=9000.0,
            service=HOSTILE,
            route=HOSTILE,
            name=HOSTILE,
            model=HOSTILE,
        ),
    )
    with fake_api(con) as api:
        monkeypatch.setenv("OVERRUN_URL", api.url)
        _, _, body = asked(
            f"{first_paint.ADDRESS}{page}",
            f"from={WINDOW['from']}&to={WINDOW['to']}".replace(":", "%3A"),
        )
    tags = Tags(body).found
    assert {tag for tag, _ in tags} <= {
        "div",
        "h1",
        "p",
        "dl",
        "dt",
        "dd",
        "small",
        "span",
        "b",
        "details",
        "summary",
    }
    assert {name for _, name in tags} <= {"", "class", "style", "role"}


@pytest.mark.parametrize(
    "query",
    [
        "%22%3E%3Cscript%3E=1&slo=%22);alert(1)//",
        "from=%00&service=</script><script>alert(1)</script>",
    ],
)
def test_an_address_writes_nothing_into_the_page(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.setenv("OVERRUN_URL", demo.url)
    _, headers, page = asked("/", query)
    plain = asked("/")[2]
    assert [len(re.findall(what, page)) for what in ("<script", "</script", "alert\\(", '"')] == [
        len(re.findall(what, plain)) for what in ("<script", "</script", "alert\\(", '"')
    ]
    assert re.fullmatch(
        r"</_first/verdict\?[\w.~%+&=-]*>; rel=preload; as=fetch; crossorigin; fetchpriority=high",
        headers["link"],
    )


def test_another_name_of_this_machine_gets_no_answer(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERRUN_URL", demo.url)
    path, query = (
        f"{first_paint.ADDRESS}verdict",
        f"from={WINDOW['from']}&to={WINDOW['to']}".replace(":", "%3A"),
    )
    assert asked(path, query, "[::1]:8501")[0] == 200
    for host in ("rebound.example:8501", "", "127.0.0.1.rebound.example", "["):
        assert asked(path, query, host)[0] == 204, host
        assert "_first" not in asked("/", query, host)[2], host


@pytest.mark.parametrize("name", ["../../etc/passwd", "nav", "", "first_paint"])
def test_what_is_no_page_has_no_answer(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("OVERRUN_URL", demo.url)
    assert asked(f"{first_paint.ADDRESS}{name}")[0] == 204


def test_what_an_address_chooses_is_asked_for_and_nothing_else(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERRUN_URL", demo.url)
    chosen = {"fix": "clip", "p_limit_ms": "300", "metric": "E2E"}
    link = asked(
        "/whatif",
        "&".join(
            f"{name}={value}"
            for name, value in ({"since": "6h", "spans": "1", "utm_x": "y"} | chosen).items()
        ),
    )[1]["link"]
    assert set(dict(parse_qsl(urlsplit(link[1 : link.index(">")]).query))) == {
        "from",
        "to",
        *chosen,
    }


def test_nothing_is_said_where_a_login_is_asked_for(
    demo: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERRUN_URL", demo.url)
    monkeypatch.setattr(login, "wanted", lambda: True)
    assert asked(f"{first_paint.ADDRESS}verdict")[2] == EMPTY_PAGE.decode()
    assert asked("/")[2] == PLAIN_PAGE


def test_a_server_that_refuses_leaves_the_sentence_to_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_api(store()) as api:
        monkeypatch.setenv("OVERRUN_URL", api.url)
        assert (
            asked(f"{first_paint.ADDRESS}verdict", "from=2026-11-20T10%3A00%3A00Z")[0] == 204
        )  # no request yet
        api.refuse = (400, b'{"error":"no"}')
        data.forget()
        assert asked(f"{first_paint.ADDRESS}verdict")[0] == 204
