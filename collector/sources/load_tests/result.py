"""What came of a load test: its requests, and what must be known of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from overrun.collector.errors import BadPayload
from overrun.collector.sources.load_tests.values import S, count

# No request takes a week: a longer one is a number in another unit.
_LONGEST_NS: Final = 7 * 86_400 * S


@dataclass(frozen=True, slots=True)
class Request:
    """One request as its client saw it, from the time it was sent, or was meant to be sent where the file tells; None: not measured.

    With `queue_ns` (from the request's arrival to its first step) it is told by the engine, not by a client."""

    start_ns: int
    e2e_ns: int
    ttft_ns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    error: str | None = None
    status_code: int | None = None
    model: str | None = None
    route: str | None = None
    tenant: str | None = None
    queue_ns: int | None = None


@dataclass(slots=True)
class LoadTest:
    """The requests of one file, by the generator `tool`; `notes` say what of them must be known to whoever judges them."""

    tool: str
    requests: list[Request] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def checked(test: LoadTest) -> LoadTest:
    """The test with each note once; one without requests, or with times that no request can have, is refused."""
    if not test.requests:
        raise BadPayload(f"no request in it ({'; '.join(test.notes) or 'it is empty'})")
    longest = max(test.requests, key=lambda request: request.e2e_ns)
    if longest.e2e_ns > _LONGEST_NS:
        raise BadPayload(
            f"a request of {longest.e2e_ns / S:,.0f} s: its times are in another unit than the format's"
        )
    # A moment before 1970 has no place in OTLP: times that count from the start of a run may begin at 0.
    early = min(request.start_ns for request in test.requests)
    requests = (
        [replace(request, start_ns=request.start_ns - early) for request in test.requests]
        if early < 0
        else test.requests
    )
    return LoadTest(test.tool, requests, list(dict.fromkeys(test.notes)))


def say_bounded(out: LoadTest, most: Any, said_by: str, corrected: bool = False) -> None:
    """Note a bound on the requests in flight: without the time when each should have been sent, what waited for others is in no figure."""
    bound = count(most)
    if bound is None or corrected:
        return
    out.notes.append(
        f"closed loop: at most {bound:,} in flight at once ({said_by}), so less was sent while the system was slow and waiting is left out of "
        "every figure; load at a fixed rate tells what users would see"
    )


def say_late(out: LoadTest, late_s: float) -> None:
    if late_s >= 1e-3:
        out.notes.append(
            f"judged from when each request was meant to be sent, up to {late_s:.3g} s before it was (the generator's own figures leave that out)"
        )


def say_unmeasured(out: LoadTest, count: int) -> None:
    if count:
        out.notes.append(f"{say_requests(count)} left out for want of a measured time")


def say_requests(count: int) -> str:
    return "1 request was" if count == 1 else f"{count:,} requests were"
