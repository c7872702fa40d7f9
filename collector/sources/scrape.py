"""How do an engine's own counters get in without restarting it? Reads its /metrics page every few seconds and stores it like pushed metrics.

A name that resolves to several addresses is read address by address, each an instance of its own. A page that jumps between processes (a load
balancer in front of several engines) is recognised by its counters going back to where another process left them: its instances are then kept apart
and the jumps called out, for read as resets they would make rates out of nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import ipaddress
import logging
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from prometheus_client import Metric as Family

from overrun.collector.errors import BadPayload, CollectorError, ConfigError
from overrun.collector.ingest.writer import METRICS, Writer
from overrun.collector.sources import prometheus

log = logging.getLogger("overrun.scrape")
MAX_PAGE = 16 << 20  # bytes; a vLLM page has about 100 kB
MAX_WAIT_S = 60.0  # between attempts at a target that does not answer
MAX_PROCESSES = 8  # separated behind one address
FORGOTTEN_AFTER = (
    20  # reads: of two processes in turn, one stays away so long once in a million times
)
# Counters by which a process is recognised: an engine's page has some hundreds, and what is kept of eight processes must not be eight pages of 100,000.
MOST_COUNTERS = 2_000
# OpenMetrics is read but not asked for: prometheus_client then takes the colons out of the samples' names and leaves them in their types'.
_ACCEPT = "text/plain;version=0.0.4,*/*;q=0.5"
_KEYS = ("url", "instance", "interval_s", "token_file")


@dataclass(frozen=True, slots=True)
class Target:
    """A page to read every `interval_s`; `instance` names the engine, by default after its address; `token_file` holds the bearer token that it asks for."""

    url: str
    instance: str | None = None
    interval_s: float = 5.0
    token_file: Path | None = None


def targets(table: Mapping[str, Any], urls: Sequence[str] = ()) -> list[Target]:
    """The targets of `[scrape]` (`interval_s`, `urls`, `targets = [{url, instance, interval_s, token_file}]`) and of --scrape.

    Raises:
        ConfigError: an unknown key, no http(s) URL, or an interval out of range.
    """
    unknown = sorted(set(table) - {"interval_s", "urls", "targets"})
    if unknown:
        raise ConfigError(f"unknown key [scrape] {unknown[0]}; known are interval_s, urls, targets")
    every = _interval(table.get("interval_s", 5.0))
    listed = table.get("targets", [])
    found = [
        Target(_url(url), None, every) for url in (*urls, *_list("urls", table.get("urls", [])))
    ]
    for entry in _list("targets", listed):
        if not isinstance(entry, dict) or "url" not in entry or set(entry) - set(_KEYS):
            raise ConfigError(
                f'[scrape] targets: {entry!r} is not a target, expected {{url = "http://gpu-0:8000/metrics", instance = "gpu-0", interval_s = 5}}'
            )
        found.append(
            Target(
                _url(entry["url"]),
                str(entry["instance"]) if "instance" in entry else None,
                _interval(entry.get("interval_s", every)),
                Path(str(entry["token_file"])) if "token_file" in entry else None,
            )
        )
    return list({t.url: t for t in found}.values())


def _list(key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"[scrape] {key} = {value!r} is not a list")
    return value


def _interval(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.1 <= value <= 3_600:
        raise ConfigError(
            f"[scrape] interval_s = {value!r} is not a number of seconds from 0.1 to 3600"
        )
    return float(value)


def _url(text: Any) -> str:
    parts = urlsplit(text) if isinstance(text, str) else None
    try:
        good = (
            parts is not None
            and parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port or 1) > 0
        )
    except ValueError:
        good = False
    if not good or parts is None:
        raise ConfigError(
            f"--scrape {text!r} is not a URL of a metrics page, such as http://127.0.0.1:8000/metrics"
        )
    return str(text) if parts.path not in ("", "/") else f"{parts.scheme}://{parts.netloc}/metrics"


@dataclass(slots=True)
class _Process:
    number: int
    started: float | None
    counters: dict[Any, float]
    read: int


@dataclass(slots=True)
class Processes:
    """Which process answered? Recognised by its start time if the page has one, else by counters that only grow. `flips` counts returns to one that
    had been left; a process that does not come back within FORGOTTEN_AFTER reads has been restarted, and is no longer looked for."""

    flips: int = 0
    _known: list[_Process] = field(default_factory=list)
    _reads: int = 0
    _next: int = 0

    def identify(self, counters: dict[Any, float], started: float | None = None) -> int:
        """The number of the process whose counters these are, from 0."""
        self._reads += 1
        self._known = [p for p in self._known if self._reads - p.read <= FORGOTTEN_AFTER][
            -MAX_PROCESSES:
        ]
        if started is not None:
            fits = [p for p in self._known if p.started == started]
        else:
            fits = sorted(
                (p for p in self._known if min(_growth(p.counters, counters), default=0) >= 0),
                key=lambda p: sum(_growth(p.counters, counters)),
            )
        if fits:
            process = fits[0]
            self.flips += process.read < self._reads - 1
        else:
            process = _Process(self._next, started, counters, self._reads)
            self._next += 1
            self._known.append(process)
        process.counters, process.read = counters, self._reads
        return process.number


def _some(counters: dict[Any, float]) -> dict[Any, float]:
    """Some of many counters, the same ones at each read of a page that has the same ones."""
    if len(counters) <= MOST_COUNTERS:
        return counters
    return {key: counters[key] for key in heapq.nsmallest(MOST_COUNTERS, counters, key=hash)}


def _growth(last: dict[Any, float], values: dict[Any, float]) -> list[float]:
    return [values[key] - before for key, before in last.items() if key in values]


class _TooLarge(BadPayload):
    """A page that is larger than any engine's."""


class _Refused(BadPayload):
    """An answer with another status than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Scraper:
    """Reads its targets until it is closed; one task a target in the running event loop."""

    def __init__(self, found: Sequence[Target], writer: Writer) -> None:
        self._writer = writer
        self._client = httpx.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            headers={"accept": _ACCEPT, "accept-encoding": "identity"},
        )
        # One page at a time is read into objects, and none waits behind those who read the store.
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="overrun-scrape")
        self._processes: dict[tuple[str, str], Processes] = {}
        self._tasks = [asyncio.create_task(self._watch(target)) for target in found]

    async def close(self) -> None:
        """Stop reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()
        self._reading.shutdown(wait=False, cancel_futures=True)

    async def _watch(self, target: Target) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                fine = await self._read_all(target)
            except Exception:  # for any error of a page: the next one is read all the same
                log.exception("%s cannot be read", target.url)
                fine = False
            failures = 0 if fine else failures + 1
            wait = min(
                target.interval_s * 2 ** min(failures, 10), max(MAX_WAIT_S, target.interval_s)
            )
            await asyncio.sleep(max(wait - (time.monotonic() - began), 0.05))

    async def _read_all(self, target: Target) -> bool:
        """Read every address behind the target's name; False if none answered."""
        host, port = _place(target.url)
        addresses = await _addresses(host, port)
        if len(addresses) <= 1:
            return await self._read(target, None, target.instance or f"{host}:{port}")
        name = target.instance or host
        named = [(at, f"{name}/{f'[{at}]' if ':' in at else at}:{port}") for at in addresses]
        return any(
            await asyncio.gather(
                *(self._read(target, address, instance) for address, instance in named)
            )
        )

    async def _read(self, target: Target, address: str | None, instance: str) -> bool:
        time_ns, began = time.time_ns(), time.monotonic()
        service, state, reason, body = "scrape", "up", "", None
        try:
            page, content_type = await self._page(target, address)
            service, instance, body = await asyncio.get_running_loop().run_in_executor(
                self._reading, self._converted, target, instance, page, content_type, time_ns
            )
        except (httpx.HTTPError, BadPayload, UnicodeDecodeError, OSError) as error:
            log.warning(
                "%s (%s) cannot be read: %s",
                target.url,
                instance,
                str(error) or type(error).__name__,
            )
            state, reason = _why(error)
        took_s = time.monotonic() - began
        if body is not None:
            await self._store(body)
        await self._store(
            prometheus.up(
                service=service,
                instance=instance,
                time_ns=time_ns,
                is_up=body is not None,
                state=state,
                reason=reason,
                took_s=took_s,
                interval_s=target.interval_s,
            )
        )
        return body is not None

    def _converted(
        self, target: Target, instance: str, page: bytes, content_type: str, time_ns: int
    ) -> tuple[str, str, bytes]:
        """Service, instance and metrics request of a page."""
        families = prometheus.parse(page.decode("utf-8"), content_type)
        service = prometheus.service_of(families) or "scrape"
        instance = self._told_apart(target, instance, families)
        body = prometheus.request(families, service=service, instance=instance, time_ns=time_ns)
        return service, instance, body

    def _told_apart(self, target: Target, instance: str, families: list[Family]) -> str:
        """The instance's name, with the number of the process that answered if several do in turn."""
        if prometheus.is_federated(families):  # whose processes come and go behind one that answers
            return instance
        processes = self._processes.setdefault((target.url, instance), Processes())
        flips = processes.flips
        number = processes.identify(
            _some(prometheus.counters(families)), prometheus.started(families)
        )
        if processes.flips > flips:
            log.warning(
                "%s answers for several processes in turn (%d returns so far): they are stored as %s#0, #1 ...; scrape the address of each process",
                target.url,
                processes.flips,
                instance,
            )
        return f"{instance}#{number}" if processes.flips else instance

    async def _page(self, target: Target, address: str | None) -> tuple[bytes, str]:
        url, headers, extensions = httpx.URL(target.url), {}, {}
        if target.token_file is not None:  # read again each time: tokens are replaced
            headers["authorization"] = (
                f"Bearer {target.token_file.read_text(encoding='utf-8').strip()}"
            )
        if address is not None:
            headers["host"] = url.netloc.decode()
            extensions["sni_hostname"] = url.host
            url = url.copy_with(host=address)
        patience_s = min(max(target.interval_s, 1.0), 10.0)
        async with asyncio.timeout(3 * patience_s):
            for _ in range(2):
                async with self._client.stream(
                    "GET",
                    url,
                    headers=headers,
                    extensions=extensions,
                    timeout=httpx.Timeout(patience_s),
                ) as answer:
                    if answer.has_redirect_location:
                        path = _with_slash(httpx.URL(target.url), answer.headers["location"])
                        url = url.copy_with(raw_path=path)
                        continue
                    return await _content(answer), answer.headers.get("content-type", "")
        raise BadPayload("it redirects more than once")

    async def _store(self, body: bytes) -> None:
        try:
            await asyncio.wrap_future(self._writer.submit(METRICS, body))
        except CollectorError as error:
            log.warning("a scraped page was not stored: %s", error)


async def _content(answer: httpx.Response) -> bytes:
    """The page, as it was sent.

    Raises:
        BadPayload: it is no page, is compressed, or is too large.
    """
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise _Refused(
            answer.status_code,
            f"it answered {answer.status_code}: name a token_file at the target in [scrape]",
        )
    if answer.status_code != httpx.codes.OK:
        raise _Refused(answer.status_code, f"it answered {answer.status_code}")
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise BadPayload(f"it compressed its page ({encoding[:40]!r}), which was not requested")
    page = bytearray()
    async for part in answer.aiter_raw(65_536):
        page += part
        if len(page) > MAX_PAGE:
            raise _TooLarge(f"its page is larger than {MAX_PAGE >> 20} MiB")
    return bytes(page)


def _why(error: Exception) -> tuple[str, str]:
    """The state of a target that was not read and the reason, in fewer words than the text of anybody's prompt."""
    if isinstance(error, _Refused):
        return "down", f"answered {error.status}"
    if isinstance(error, _TooLarge | prometheus.TooManySamples):
        return "unreadable", "too large"
    if isinstance(error, BadPayload) and "compressed" in str(error):
        return "unreadable", "compressed without request"
    if isinstance(error, BadPayload):
        return "unreadable", "redirects elsewhere" if "redirect" in str(
            error
        ) else "no metrics page"
    if isinstance(error, UnicodeDecodeError):
        return "unreadable", "no UTF-8 text"
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return "down", "timed out"
    if isinstance(error, FileNotFoundError | PermissionError):
        return "unreadable", "token file missing"
    text = " ".join(_chain(error)).lower()
    known = (
        ("refused", "connection refused"),
        ("name or service", "unknown host"),
        ("resolution", "unknown host"),
        ("no address", "unknown host"),
        ("unreachable", "unreachable"),
        ("certificate", "certificate not trusted"),
    )
    return "down", next((said for part, said in known if part in text), "connection failed")


def _chain(error: BaseException | None, most: int = 8) -> Iterator[str]:
    """The kinds and texts of an error and of those behind it: the library's own reports only that every attempt failed."""
    while error is not None and most:
        yield f"{type(error).__name__} {error}"
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions[:most]:
                yield from _chain(inner, most - 1)
        error, most = error.__cause__ or error.__context__, most - 1


def _with_slash(target: httpx.URL, location: str) -> bytes:
    """Where a redirect leads, if that is the same page with a slash behind it (`/metrics` to `/metrics/`, as mounted applications answer).

    Raises:
        BadPayload: it leads elsewhere: only what was named is read.
    """
    try:
        there = target.join(location)
    except httpx.InvalidURL as error:
        raise BadPayload(f"it redirects to {location[:200]!r}, which is not a URL") from error
    if there != target.copy_with(path=f"{target.path}/"):
        raise BadPayload(
            f"it redirects to {str(there)[:200]!r}: scrape that address if it belongs to the engine"
        )
    return there.raw_path


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


async def _addresses(host: str, port: int) -> list[str]:
    """Where a name points to, IPv4 alone if there is any (`localhost` is one engine, not two); empty for an address or an unknown name."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return []
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    four = sorted({str(entry[4][0]) for entry in found if entry[0] == socket.AF_INET})
    return four or sorted({str(entry[4][0]) for entry in found})
