"""How is another tool's API asked? Read-only, a bounded answer at a time, at a bounded rate, and only at the address that the user named.

What comes back is hostile input: its size, the values in it and the time that it takes are bounded before it is decoded, redirects are not followed, and no
text of it decides where to ask next.
Tokens come from the environment. They are in no message and in no log.
"""

from __future__ import annotations

import base64
import io
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx
import msgspec

from overrun.collector.access.deadline import BoundedTransport
from overrun.collector.access.trust import trusted
from overrun.collector.decode import items
from overrun.collector.errors import ConfigError, ImportFailed
from overrun.collector.sources.remote.address import checked_url

MAX_ANSWER: Final = 32 << 20  # bytes of one answer; as Python values they take about ten times that
# Values of one answer, by what they take as Python's objects: about 300 bytes each. Empty ones take twenty times their size in the answer, not ten.
MAX_ITEMS: Final = 1_200_000
MAX_TOTAL: Final = 4 << 30  # bytes of one pull
MAX_ASKED: Final = 200_000  # questions of one pull: three hours of them
# For the next bytes of an answer, and for one altogether: Prometheus gives up a query after two minutes.
_PATIENCE_S: Final = 60.0
_MOST_S: Final = 300.0
_ATTEMPTS: Final = 5
_LONGEST_WAIT_S: Final = 30.0
# Busy or restarting; anything else is an answer.
_RETRY_LATER: Final = (429, 502, 503, 504)
# The server itself found the question too large (Prometheus and its relatives: too many samples; Tempo and others: too long a range).
_TOO_LARGE: Final = (413, 422)
_SHOWN: Final = 200  # characters of a server's own words in a message
Parameters = Mapping[str, str | int] | list[tuple[str, str]]


class TooMuch(ImportFailed):
    """The answer would be larger than is read at once: ask for less time."""


class Refused(ImportFailed):
    """The server answered with another status than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def credentials(environment: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Headers from OVERRUN_SOURCE_TOKEN (bearer), _USER and _PASSWORD (basic) and _HEADERS ("name=value,name=value"); `own` are those of the tool's
    own variables, which these replace.

    Raises:
        ConfigError: OVERRUN_SOURCE_HEADERS is not of that form.
    """
    headers = {name.lower(): value for name, value in own.items()}
    user = environment.get("OVERRUN_SOURCE_USER")
    if user:
        headers["authorization"] = basic(user, environment.get("OVERRUN_SOURCE_PASSWORD", ""))
    if token := environment.get("OVERRUN_SOURCE_TOKEN"):
        headers["authorization"] = f"Bearer {token}"
    for pair in filter(None, environment.get("OVERRUN_SOURCE_HEADERS", "").split(",")):
        name, equals, value = pair.strip().partition("=")
        if not equals or not name.replace("-", "").isalnum():
            raise ConfigError(
                "OVERRUN_SOURCE_HEADERS is not a list such as X-Scope-OrgID=team-a,X-Other=value"
            )
        headers[name.lower()] = value.strip()
    return headers


def basic(user: str, password: str) -> str:
    """The value of an authorization header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Fetcher:
    """Asks one server for JSON; use it as a context. Not shared between threads."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        per_second: float = 20.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = checked_url(url)
        self.asked = 0
        self.received = 0
        self._gap_s, self._sleep, self._next = 1.0 / per_second, sleep, 0.0
        # No proxy and no .netrc from the environment: what is sent goes to the named host alone.
        self._transport = BoundedTransport(_MOST_S, trusted(self.url))
        self._http = httpx.Client(
            headers={"accept": "application/json", "accept-encoding": "identity", **headers},
            transport=self._transport,
            timeout=_PATIENCE_S,
            follow_redirects=False,
        )

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, parameters: Parameters | None = None) -> Any:
        """The decoded answer to a GET.

        Raises:
            TooMuch: larger than MAX_ANSWER, or too large for the server. Refused: another status. ImportFailed: no answer, or no JSON.
        """
        return self._decoded(self._body("GET", path, params=parameters))

    def post(self, path: str, document: Any) -> Any:
        """As `get`, for APIs whose searches are sent as JSON by POST."""
        content = msgspec.json.encode(document)
        headers = {"content-type": "application/json"}
        return self._decoded(self._body("POST", path, content=content, headers=headers))

    def lines(self, path: str, parameters: Parameters, content: str) -> list[Any]:
        """The values of an answer of one JSON document a line."""
        body = self._body("POST", path, params=parameters, content=content.encode())
        self._count(body)
        return [self._decoded(line) for line in io.BytesIO(body) if line.strip()]

    def _count(self, body: bytes) -> None:
        """Refuse an answer with more values than are read at once, before any of them is made."""
        if items.count_json(body) > MAX_ITEMS:
            raise TooMuch(f"an answer of {self.url} holds more than {MAX_ITEMS:,} values")

    def _decoded(self, body: bytes) -> Any:
        self._count(body)
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ImportFailed(f"{self.url} answered with no JSON: is it the API?") from error

    def _body(self, method: str, path: str, **more: Any) -> bytes:
        for attempt in range(1, _ATTEMPTS + 1):
            self._wait_for_turn()
            try:
                status, body, after = self._once(method, path, more)
            except httpx.HTTPError as error:
                # An answer that does not end would not end the next time.
                final = self._transport.deadline.passed or attempt == _ATTEMPTS
                if final or isinstance(error, httpx.UnsupportedProtocol):
                    raise ImportFailed(
                        f"{self.url} does not answer: {str(error)[:_SHOWN] or type(error).__name__}"
                    ) from error
                status, after = 503, None
            if status == httpx.codes.OK:
                return body
            if status not in _RETRY_LATER:
                raise self._refused(status, body)
            if attempt < _ATTEMPTS:
                self._sleep(after if after is not None else min(2.0**attempt / 2, _LONGEST_WAIT_S))
        raise Refused(status, f"{self.url} answered {status} {_ATTEMPTS} times: try again later")

    def _once(
        self, method: str, path: str, more: Mapping[str, Any]
    ) -> tuple[int, bytes, float | None]:
        """Status, body and how long to wait of one attempt."""
        self.asked += 1
        if self.asked > MAX_ASKED:
            raise ImportFailed(
                f"{self.url} was asked {MAX_ASKED:,} times: choose a shorter window, or --match"
            )
        body = bytearray()
        with self._http.stream(method, f"{self.url}{path}", **more) as answer:
            encoding = answer.headers.get("content-encoding", "identity").strip().lower()
            if encoding not in ("", "identity"):
                raise ImportFailed(f"{self.url} compressed its answer, which was not requested")
            for part in answer.iter_raw(65_536):
                body += part
                self.received += len(part)
                if len(body) > MAX_ANSWER:
                    raise TooMuch(f"an answer of {self.url} is larger than {MAX_ANSWER >> 20} MiB")
                if self.received > MAX_TOTAL:
                    raise ImportFailed(
                        f"{self.url} has sent {MAX_TOTAL >> 30} GiB: choose a shorter window, or --match"
                    )
        return answer.status_code, bytes(body), _seconds(answer.headers.get("retry-after"))

    def _refused(self, status: int, body: bytes) -> ImportFailed:
        if status in _TOO_LARGE:
            return TooMuch(f"{self.url} answered {status}: {_words(body)}")
        if 300 <= status < 400:
            return Refused(
                status, f"{self.url} redirects, which is not followed: give the address it leads to"
            )
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            return Refused(
                status,
                f"{self.url} answered {status}: set OVERRUN_SOURCE_TOKEN, or OVERRUN_SOURCE_USER and OVERRUN_SOURCE_PASSWORD",
            )
        return Refused(status, f"{self.url} answered {status}: {_words(body)}")

    def _wait_for_turn(self) -> None:
        now = time.monotonic()
        if now < self._next:
            self._sleep(self._next - now)
        self._next = max(now, self._next) + self._gap_s


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds, bounded; None where it is a date or missing."""
    try:
        found = float(text) if text else math.nan
    except ValueError:
        return None
    return min(max(found, 0.0), _LONGEST_WAIT_S) if math.isfinite(found) else None


def _words(body: bytes) -> str:
    """The beginning of an error answer, printable."""
    text = body[:_SHOWN].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else " " for c in text).strip() or "no reason given"
