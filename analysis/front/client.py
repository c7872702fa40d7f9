"""How does another process ask a running server? One client for the commands and the dashboard: the same structs come out as went in on the server.

The dashboard has nothing but this: no database, no SQL. Every failure is one of three errors, each with a sentence for the person in front.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final, Literal

import httpx
import msgspec

from overrun.analysis.front.answer_body import (
    DEFAULT_URL,
    TIMEOUT_S,
    ClientError,
    Refused,
    TooOld,
    Unreachable,
    decoded,
)
from overrun.analysis.front.question_table import PREFIX, Answer, Entry
from overrun.collector.access.auth import Tokens
from overrun.collector.access.trust import trusted

# An answer is read no further than so. The largest that a server of ours gives is a page of 10,000 requests: a few MB.
_MOST_BYTES: Final = 256 << 20
# A file: the rows of an hour at a billion requests a day, 300 M spans, are some 20 GB. A server writes it for an hour at most.
_MOST_FILE_BYTES, _MOST_FILE_S = 64 << 30, 3_600.0
# A name in a path is pasted by people: whatever it holds must stay one segment, of at most so many characters.
_SEGMENT: Final = 64
Right = Literal["read", "ingest", "erase"]
__all__ = [
    "DEFAULT_URL",
    "TIMEOUT_S",
    "Client",
    "ClientError",
    "ComeAgain",
    "Refused",
    "TooOld",
    "Unreachable",
    "decoded",
]


@dataclass(frozen=True)
class _Heard:
    """What came back, whole."""

    status_code: int
    headers: httpx.Headers
    content: bytes


class Client:
    """Asks one server. Every method raises Unreachable, Refused or TooOld. Safe to share between threads."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        right: Right = "read",
        timeout_s: float | None = None,
    ) -> None:
        """`url` is the server's address such as http://127.0.0.1:4318; `token` is by default that of the environment for what is to be done.

        `timeout_s` replaces the time that each question may take.
        """
        self.url = url.rstrip("/")
        self._right, self._timeout_s = right, timeout_s
        token = token or getattr(Tokens.from_environment(os.environ), right)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        # No proxy from the environment: the server is on this machine or named outright.
        self._http = httpx.Client(
            headers=headers,
            timeout=timeout_s or TIMEOUT_S,
            trust_env=False,
            verify=trusted(self.url),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(
        self,
        entry: Entry[Answer],
        parameters: Mapping[str, str | None] | None = None,
        **more: str | float | None,
    ) -> Answer:
        """Ask a question of the table; `parameters` and `more` are its parameters by name, and those that are None or empty are left out."""
        texts = {name: None if v is None else str(v) for name, v in more.items()}
        return decoded(entry, self.read(entry, {**(parameters or {}), **texts}))

    def read(self, entry: Entry[Any], parameters: Mapping[str, str | None]) -> bytes:
        """Ask a question and return the body of the answer."""
        path, given = _address(entry, parameters)
        timeout_s = self._timeout_s or entry.timeout_s
        return self._sent("GET", path, params=given, timeout=timeout_s).content

    def save(self, entry: Entry[Any], parameters: Mapping[str, str | None], out: IO[bytes]) -> None:
        """Ask a question whose answer is a file and write it to `out` as it comes, for an hour at most."""
        path, given = _address(entry, parameters)
        until_s = time.monotonic() + _MOST_FILE_S
        with self._answer("GET", path, params=given, timeout=_MOST_FILE_S) as answer:
            if answer.status_code != httpx.codes.OK:
                content = self._whole(answer, time.monotonic() + TIMEOUT_S)
                raise self._refusal(path, _Heard(answer.status_code, answer.headers, content))
            for part in self._parts(answer, until_s, _MOST_FILE_BYTES):
                out.write(part)

    def alive(self, timeout_s: float) -> bool:
        """Whether a server answers."""
        try:
            self._http.get(f"{self.url}/healthz", timeout=timeout_s)
        except httpx.HTTPError:
            return False
        return True

    def pending_traces(self) -> int:
        """How many traces wait to be assembled."""
        ready = msgspec.json.decode(self._request("GET", "/readyz").content, type=dict[str, Any])
        return int(ready.get("pending_traces") or 0)

    def send(self, signal: str, body: bytes) -> None:
        """Send one body of OTLP in protobuf, again where the server asks for it, for a minute."""
        until = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self._sent(
                    "POST",
                    f"/v1/{signal}",
                    content=body,
                    headers={"content-type": "application/x-protobuf"},
                )
                return
            except ComeAgain as error:
                if time.monotonic() > until:
                    raise Refused(
                        f"{self.url} has been refusing for a minute: its queue is full",
                        error.status,
                    ) from error
                time.sleep(error.after_s)

    def forget(self, *, user: str | None, tenant: str | None) -> bytes:
        """Have a user or a tenant erased; returns the body of the answer."""
        whom = {"user": user} if user else {"tenant": tenant}
        return self._sent("POST", "/v1/forget", json=whom).content

    def _sent(self, method: str, path: str, **more: Any) -> _Heard:
        answer = self._request(method, path, **more)
        if answer.status_code != httpx.codes.OK:
            raise self._refusal(path, answer)
        return answer

    def _request(
        self, method: str, path: str, *, timeout: float | None = None, **more: Any
    ) -> _Heard:
        timeout_s = timeout or self._timeout_s or TIMEOUT_S
        with self._answer(method, path, timeout=timeout_s, **more) as answer:
            content = self._whole(answer, time.monotonic() + timeout_s)
        return _Heard(answer.status_code, answer.headers, content)

    @contextmanager
    def _answer(self, method: str, path: str, **more: Any) -> Iterator[httpx.Response]:
        try:
            with self._http.stream(method, f"{self.url}{path}", **more) as answer:
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(
                f"{self.url} cannot be reached ({_why(error)}): start it with `overrun serve`, or name another with --url"
            ) from error

    def _whole(self, answer: httpx.Response, until_s: float) -> bytes:
        return b"".join(self._parts(answer, until_s, _MOST_BYTES))

    def _parts(self, answer: httpx.Response, until_s: float, most: int) -> Iterator[bytes]:
        """The body, if it ends in time and at a size that a server of ours can give."""
        size = 0
        for part in answer.iter_bytes(65_536):
            size += len(part)
            if size > most:
                raise Refused(
                    f"{self.url} answers with more than {most >> 20} MiB: is it an Overrun server?",
                    answer.status_code,
                )
            if time.monotonic() > until_s:
                raise httpx.ReadTimeout("the answer has no end", request=answer.request)
            yield part

    def _refusal(self, path: str, answer: _Heard) -> ClientError:
        status, sentence = answer.status_code, _sentence(answer)
        if status == httpx.codes.UNAUTHORIZED or (
            status == httpx.codes.FORBIDDEN and sentence is None
        ):
            variable = f"OVERRUN_{self._right.upper()}_TOKEN"
            return Refused(
                f"{self.url} wants a token: set {variable} to the server's {self._right} token and start again",
                status,
            )
        if status == httpx.codes.SERVICE_UNAVAILABLE and "retry-after" in answer.headers:
            return ComeAgain(sentence, status, _seconds(answer.headers["retry-after"]))
        if sentence is not None:
            return Refused(sentence, status)
        if status == httpx.codes.NOT_FOUND:
            return TooOld(
                f"{self.url} does not know {path}: it is an older Overrun (update the server), or another tool: name its kind, as in prometheus:{self.url}"
            )
        return Refused(f"{self.url} answered {status}: is it an Overrun server?", status)


def _address(entry: Entry[Any], parameters: Mapping[str, str | None]) -> tuple[str, dict[str, str]]:
    """The path of a question, and the parameters that are not in it."""
    given = {name: value for name, value in parameters.items() if value}
    path = entry.path
    for parameter in filter(entry.in_path, entry.parameters):
        segment = "".join(c for c in given.pop(parameter.name, "") if c.isalnum() or c in "_-")
        path = path.replace(f"{{{parameter.name}}}", segment[:_SEGMENT] or "-")
    return f"{PREFIX}/{path}", given


class ComeAgain(Refused):
    """The server has no room now and says after how many seconds it will have."""

    def __init__(self, sentence: str | None, status: int, after_s: float) -> None:
        super().__init__(sentence or f"retry in {after_s:g} s", status)
        self.after_s = after_s


def _sentence(answer: _Heard) -> str | None:
    try:
        said = msgspec.json.decode(answer.content, type=dict[str, object]).get("error")
    except msgspec.MsgspecError:
        return None
    return said if isinstance(said, str) else None


def _seconds(text: str) -> float:
    """The time of a Retry-After header: seconds, or a date, which is taken for a second."""
    return min(float(text), TIMEOUT_S) if text.isdecimal() else 1.0


def _why(error: Exception) -> str:
    said = re.sub(r"^\[Errno -?\d+\] ", "", str(error))[:200] or type(error).__name__
    return "it did not answer in time" if isinstance(error, httpx.TimeoutException) else said
