"""An open-loop client: sends a schedule to the application and keeps what the user saw.

`python -m tests.lab.client URL SCHEDULE.json TRUTH.json [GIVE_UP_S]`. The truth is one record a request, as `Seen`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict
from pathlib import Path

import httpx
import msgspec

from tests.lab.load import Request


class Seen(msgspec.Struct, kw_only=True):
    """What one user saw. Times in ms from the moment at which the request was due."""

    number: int
    sent_unix: float
    late_ms: float  # how much later than due the client sent it
    ttft_ms: float | None = None
    e2e_ms: float | None = None
    output_tokens: int = 0  # as asked for
    chunks: int = 0
    longest_gap_ms: float = 0.0
    error: str | None = None


async def send(
    client: httpx.AsyncClient, url: str, request: Request, begin: float, give_up_s: float
) -> Seen:
    """Wait until the request is due, send it, read its stream."""
    due = begin + request.at_s
    await asyncio.sleep(max(0.0, due - time.monotonic()))
    start = time.monotonic()
    seen = Seen(
        number=request.number,
        sent_unix=time.time(),
        late_ms=(start - due) * 1e3,
        output_tokens=request.output_tokens,
    )
    last = None
    try:
        async with asyncio.timeout(give_up_s or None):
            async with client.stream("POST", url + request.route, json=asdict(request)) as response:
                response.raise_for_status()
                async for text in response.aiter_bytes():
                    now = time.monotonic()
                    if b"!error" in text:
                        seen.error = text.decode().strip()
                        break
                    seen.chunks += 1
                    if last is None:
                        seen.ttft_ms = (now - due) * 1e3
                    else:
                        seen.longest_gap_ms = max(seen.longest_gap_ms, (now - last) * 1e3)
                    last = now
        seen.e2e_ms = (time.monotonic() - due) * 1e3
    except (httpx.HTTPError, TimeoutError) as error:
        seen.error = type(error).__qualname__
    return seen


async def run(url: str, requests: list[Request], give_up_s: float) -> list[Seen]:
    """Send all requests at their times, whatever the answers do."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
    async with httpx.AsyncClient(limits=limits, timeout=httpx.Timeout(600, connect=30)) as client:
        begin = time.monotonic() + 0.3
        return list(
            await asyncio.gather(*(send(client, url, r, begin, give_up_s) for r in requests))
        )


def main() -> None:
    """Run a schedule file."""
    url, schedule, truth = sys.argv[1:4]
    give_up_s = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    requests = msgspec.json.decode(Path(schedule).read_bytes(), type=list[Request])
    seen = asyncio.run(run(url, requests, give_up_s))
    Path(truth).write_bytes(msgspec.json.encode(seen))


if __name__ == "__main__":
    main()
