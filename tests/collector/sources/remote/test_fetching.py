"""A hostile or failing server costs a bounded answer and an error that names the remedy; no token is in a message, and no redirect is followed."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest

from overrun.collector.errors import ConfigError, ImportFailed
from overrun.collector.sources.remote import documents, fetching
from overrun.collector.sources.remote.address import Address, checked_url
from overrun.collector.sources.remote.documents import Cursors, Notes
from overrun.collector.sources.remote.fetching import Fetcher, TooMuch, credentials
from tests.collector.sources.remote.servers import Answer, Asked, answer, dripping, raw, serving

SECRET = "s3cr3t-token"


def asking(respond: Callable[[Asked], Answer], slept: list[float] | None = None) -> object:
    headers = credentials({"OVERRUN_SOURCE_TOKEN": SECRET}, {})
    slept = [] if slept is None else slept
    with serving(respond) as server, Fetcher(server.url, headers, sleep=slept.append) as fetch:
        return fetch.get("/api")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (
            (302, {"location": "http://elsewhere.example/"}, b""),
            ImportFailed,
            "redirects, which is not followed",
        ),
        ((401, {}, b"no"), ImportFailed, "set OVERRUN_SOURCE_TOKEN"),
        ((418, {}, b"\x1b[31mtea\x00"), ImportFailed, r"answered 418: \[31mtea$"),
        ((422, {}, b"too many samples"), TooMuch, "too many samples"),
        ((200, {}, b"<html>"), ImportFailed, "answered with no JSON"),
        ((200, {}, b"[" * 100_000), ImportFailed, "answered with no JSON"),
        ((200, {"content-encoding": "gzip"}, gzip.compress(b"{}")), ImportFailed, "compressed"),
        ((503, {"retry-after": "7"}, b""), ImportFailed, "answered 503 5 times"),
    ],
)
def test_other_answers_end_with_a_remedy(
    given: Answer, error: type[ImportFailed], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        asking(lambda asked: given)
    assert SECRET not in str(raised.value)


def test_a_large_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_ANSWER", 100_000)
    with pytest.raises(TooMuch, match="larger than"):
        asking(lambda asked: (200, {}, b'"' + b"x" * 5_000_000 + b'"'))


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (b"HTTP/1.1 200 OK\r\nx-long: ", b"\r\ncontent-length: 2\r\n\r\n{}"),
        (b'HTTP/1.1 200 OK\r\ncontent-length: 202\r\n\r\n"', b'"'),
    ],
)
def test_an_answer_that_comes_byte_by_byte_is_given_up(
    monkeypatch: pytest.MonkeyPatch, head: bytes, tail: bytes
) -> None:
    monkeypatch.setattr(fetching, "_MOST_S", 0.1)
    with (
        raw(dripping(head, tail)) as port,
        Fetcher(f"http://127.0.0.1:{port}", {}, sleep=lambda _: None) as fetch,
    ):
        with pytest.raises(ImportFailed, match="does not answer"):
            fetch.get("/api")
        assert fetch.asked == 1


@pytest.mark.parametrize("text", [b"[" + b"[]," * 500 + b"[]]", b'[{"":0}]' * 200])
def test_an_answer_of_many_empty_values_is_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(fetching, "MAX_ITEMS", 100)
    with pytest.raises(TooMuch, match="holds more than 100 values"):
        asking(lambda asked: (200, {}, text))


def test_a_server_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_ASKED", 3)
    with serving(lambda asked: answer([])) as server, Fetcher(server.url, {}) as fetch:
        for _ in range(3):
            fetch.get("/api")
        with pytest.raises(ImportFailed, match="was asked 3 times"):
            fetch.get("/api")


def test_pages_that_lead_in_circles_end(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Cursors()
    assert [pages.next(n) for n in ("a", "b", "a", None, "", 7)] == ["a", "b"] + [None] * 4
    monkeypatch.setattr(documents, "_MOST_PAGES", 2)
    with pytest.raises(TooMuch, match="more than 2 pages"):
        pages.next("c")


def test_notes_are_few_and_printable() -> None:
    notes = Notes()
    for at in range(1_000):
        notes.append(f"left out: \x1b[31m{at % 30}{'x' * 9_000}")
    assert len(notes) == 20
    assert max(map(len, notes)) == 400
    assert "\x1b" not in "".join(notes)


def test_a_busy_server_is_asked_again_when_it_wants() -> None:
    slept: list[float] = []
    answers = [(429, {"retry-after": "2"}, b""), (503, {"retry-after": "99999"}, b""), answer([1])]
    assert asking(lambda asked: answers.pop(0), slept) == [1]
    assert [s for s in slept if s >= 1.0] == [2.0, 30.0]


def test_the_token_goes_to_the_named_server_alone() -> None:
    seen = []

    def respond(asked: Asked) -> Answer:
        seen.append(asked.headers)
        return answer({})

    asking(respond)
    assert seen[0]["authorization"] == f"Bearer {SECRET}"


def test_credentials_in_an_address_are_refused_without_being_shown() -> None:
    with pytest.raises(ConfigError, match="OVERRUN_SOURCE_USER") as raised:
        checked_url(f"https://me:{SECRET}@example.com")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("http://prom:9090", "prometheus"),
        ("tempo:https://tempo.example.com", "tempo"),
        ("https://cloud.langfuse.com", "langfuse"),
        ("http://127.0.0.1:16686/", "jaeger"),
        ("http://example.com", ""),
        ("https://notlangfuse.com", ""),
    ],
)
def test_an_address_names_its_kind_or_has_its_port_or_is_a_server_of_ours(
    text: str, kind: str
) -> None:
    assert Address.read(text).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "zipkin:http://x:1",
        "prometheus:ftp://x",
        "prometheus:http://x:1/?a=b",
    ],
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Address.read(text)


def test_headers_of_tenants_are_sent() -> None:
    made = credentials({"OVERRUN_SOURCE_HEADERS": "X-Scope-OrgID=a, x-b=c=d"}, {"X-Api-Key": "k"})
    assert made == {"x-api-key": "k", "x-scope-orgid": "a", "x-b": "c=d"}
    with pytest.raises(ConfigError, match="OVERRUN_SOURCE_HEADERS"):
        credentials({"OVERRUN_SOURCE_HEADERS": "no equals"}, {})
