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
    itl_ns: int | None = field(
        default=None, compare=False
    )  # mean gap between tokens, of the file's own gaps
    late_ns: int = field(
        default=0, compare=False
    )  # how long after its turn it was sent; a part of all times here


@dataclass(frozen=True, slots=True)
class Summary:
    """What a generator computed itself: `percentiles` by metric (ttft, itl, tpot, e2e) and percentile (100 is the maximum), and `means`, in ms."""

    percentiles: dict[str, dict[float, float]]
    means: dict[str, float]
    succeeded: int | None
    failed: int
    answered_rps: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None


@dataclass(slots=True)
class Run:
    """One run of a load test: the load that was asked for, with its requests, or a `summary` in their place.

    `rate_rps` is the rate asked for (None: as fast as `in_flight` at once allow, or not recorded), `apart` has values in ms that the file does not
    assign to requests.
    """

    name: str
    requests: list[Request] = field(default_factory=list)
    summary: Summary | None = None
    rate_rps: float | None = None
    in_flight: int | None = None
    duration_s: float | None = None
    model: str | None = None
    apart: dict[str, list[float]] = field(default_factory=dict)
    timed: bool = True  # False: the file does not record when requests were sent
    why: str = ""  # why it has no requests, and how to have them


@dataclass(slots=True)
class LoadTest:
    """The requests of one file, by the generator `tool`; `notes` say what of them must be known to whoever judges them.

    `runs` hold the same requests by run, and runs of which there is a summary alone.
    """

    tool: str
    requests: list[Request] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


def checked(test: LoadTest) -> LoadTest:
    """The test with each note once; one without requests, or with times that no request can have, is refused."""
    if not test.requests:
        raise BadPayload(f"no request in it ({'; '.join(test.notes) or 'it is empty'})")
    longest = max(test.requests, key=lambda request: request.e2e_ns)
    if longest.e2e_ns > _LONGEST_NS:
        raise BadPayload(
            f"a request of {longest.e2e_ns / S:,.0f} s: its times are not in the unit of the format"
        )
    # A moment before 1970 has no place in OTLP: times that count from the start of a run may begin at 0.
    early = min(request.start_ns for request in test.requests)
    requests = (
        [replace(request, start_ns=request.start_ns - early) for request in test.requests]
        if early < 0
        else test.requests
    )
    return LoadTest(test.tool, requests, list(dict.fromkeys(test.notes)), test.runs)


def say_load(rate_rps: float | None, in_flight: int | None) -> str:
    """A run's name by its load; empty where the file records none."""
    if rate_rps is not None:
        return f"{rate_rps:g} requests/s"
    return f"{in_flight:,} in flight" if in_flight is not None else ""


def say_bounded(out: LoadTest, most: Any, said_by: str, corrected: bool = False) -> None:
    """Note a bound on the requests in flight: without the time when each should have been sent, what waited for others is in no figure."""
    bound = count(most)
    if bound is None or corrected:
        return
    out.notes.append(
        f"closed loop: at most {bound:,} in flight at once ({said_by}), so fewer requests were sent while the system was slow, and every "
        "figure leaves waiting out. Load at a fixed rate shows the latency of users"
    )


def say_late(out: LoadTest, late_s: float) -> None:
    if late_s >= 1e-3:
        out.notes.append(
            f"measured from the intended send time of each request, up to {late_s:.3g} s before it was sent (the generator's figures leave that out)"
        )


def say_unmeasured(out: LoadTest, count: int) -> None:
    if count:
        out.notes.append(f"{say_requests(count)} left out because they have no measured time")


def say_requests(count: int) -> str:
    return "1 request was" if count == 1 else f"{count:,} requests were"
