"""An application whose requests are a few steps one after the other: each case says what the steps are, and what they take before and after a change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.corpus.otlp import CLIENT, INTERNAL, SERVER, resource, span, write


class Trace:
    """One request, written down step by step: `now` is a cursor in ms, and each step's span begins where the one before it ended."""

    def __init__(self, number: object, at_ms: float, later: bool, draw: random.Random) -> None:
        self.number, self.now, self.later, self.draw = number, at_ms, later, draw
        self.spans: list[tuple[str, str, dict[str, Any]]] = []
        self._open: list[str] = []
        self._keys = 0

    def about(self, ms: float, spread: float = 0.25) -> float:
        """A time around this median, log-normal with this sigma."""
        return ms * self.draw.lognormvariate(0.0, spread)

    @contextmanager
    def within(
        self,
        name: str,
        *,
        kind: int = INTERNAL,
        service: str = "app",
        scope: str = "",
        attributes: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Iterator[dict[str, Any]]:
        """A span around the steps inside; what is put into the mapping that it gives becomes attributes."""
        start, key = self.now, str(self._keys)
        self._keys += 1
        parent = self._open[-1] if self._open else ""
        self._open.append(key)
        told = dict(attributes or {})
        yield told
        self._open.pop()
        self.spans.append(
            (
                service,
                scope,
                span(
                    self.number,
                    name,
                    start,
                    self.now - start,
                    key=key,
                    parent=parent,
                    kind=kind,
                    attributes=told,
                    **more,
                ),
            )
        )

    def step(self, name: str, ms: float, **more: Any) -> None:
        """A span without others inside."""
        with self.within(name, **more):
            self.now += ms

    def chat(
        self,
        ttft_ms: float,
        ms: float,
        *,
        read: int = 900,
        output: int = 120,
        model: str = "gpt-4o",
        **attributes: Any,
    ) -> None:
        """A model call in the conventions' words."""
        self.step(
            f"chat {model}",
            ms,
            kind=CLIENT,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": model,
                "gen_ai.usage.input_tokens": read,
                "gen_ai.usage.output_tokens": output,
                "gen_ai.response.time_to_first_chunk": ttft_ms / 1e3,
            }
            | {key.replace("__", "."): value for key, value in attributes.items()},
        )


def requests(
    serve: Callable[[Trace], None], *, n: int = 500, every_ms: float = 2_400.0, seed: int = 1
) -> list[Trace]:
    """So many requests at random moments; those of the second half are `later`."""
    draw, at, out = random.Random(seed), 0.0, []
    for number in range(n):
        at += draw.expovariate(1 / every_ms)
        trace = Trace(number, at, number >= n // 2, draw)
        serve(trace)
        out.append(trace)
    return out


def written(folder: Path, traces: list[Trace], name: str = "traces.json") -> None:
    """All spans of these requests as one OTLP/JSON file, by service and scope."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for trace in traces:
        for service, scope, told in trace.spans:
            found.setdefault((service, scope), []).append(told)
    write(
        folder / name,
        *(resource(service, spans, scope=scope) for (service, scope), spans in found.items()),
    )


def served(path: str) -> dict[str, Any]:
    """A server span's arguments."""
    return {
        "kind": SERVER,
        "attributes": {
            "http.request.method": "POST",
            "http.route": path,
            "http.response.status_code": 200,
        },
    }


def posted(url: str, status: int = 200) -> dict[str, Any]:
    """An HTTP client span's arguments."""
    return {
        "kind": CLIENT,
        "attributes": {
            "http.request.method": "POST",
            "url.full": url,
            "server.address": url.split("/")[2],
            "http.response.status_code": status,
        },
    }
