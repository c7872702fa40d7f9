"""Which of the numbers of model calls mislead? Early role chunks, hidden retries, hidden reasoning and cached-token conventions."""

from collections.abc import Mapping
from typing import Final

import duckdb

from overrun.analysis.numbers.quality.row import FAIL_SHARE, ONE_PERCENT, Check, Grade
from overrun.analysis.numbers.window import Window, answers, filter_of
from overrun.analysis.words.finding import say_count, say_ratio

# Requests whose calls tell what is usual for a model: of 50,000 a median is right to 1 %, and what is far below it is below a quarter.
USUAL_FROM: Final = 50_000


def call_checks(
    con: duckdb.DuckDBPyConnection, window: Window, requests: int, of: int = 1
) -> list[Check]:
    """Return the checks of the model calls of one trace in `of`, in a window with so many requests; one that does not apply (no such calls) is not listed."""
    every = of * max(1, requests // of // USUAL_FROM)
    seen = answers(con, "quality_calls", filter_of(window) | {"every": every, "of": of})[0]
    found = [
        part(seen)
        for part in (_beyond_end, _early_chunk, _hidden_retries, _hidden_reasoning, _cached_tokens)
    ]
    return [check for check in found if check is not None]


def _grade(share: float) -> Grade:
    return "ok" if share <= ONE_PERCENT else "fail" if share > FAIL_SHARE else "warn"


def _beyond_end(seen: Mapping[str, int]) -> Check | None:
    """A first token behind the call's end is a time in another unit; its request is given the end instead, which looks like a buffered answer."""
    share = seen["beyond"] / seen["timed"] if seen["timed"] else 0.0
    if share <= ONE_PERCENT:
        return None
    detail = (
        f"in {seen['beyond']:,} of {seen['timed']:,} calls the first chunk comes after the end ({say_ratio(share)}): an instrumentation "
        "sends milliseconds, but the conventions want seconds (gen_ai.response.time_to_first_chunk), or clocks differ"
    )
    return Check(
        check="impossible_times", status="fail" if share > FAIL_SHARE else "warn", detail=detail
    )


def _early_chunk(seen: Mapping[str, int]) -> Check | None:
    """A role chunk that is flushed before prefill looks like a first token."""
    if not seen["timed"]:
        return None
    share = seen["early"] / seen["timed"]
    detail = f"{seen['early']:,} of {seen['timed']:,} calls report a first chunk before the engine can have written a token ({say_ratio(share)})"
    if share > ONE_PERCENT:
        detail += ": the server flushes an empty role chunk; record the first chunk with content"
    return Check(check="early_role_chunk", status=_grade(share), detail=detail)


def _hidden_retries(seen: Mapping[str, int]) -> Check | None:
    """Retries inside a client are part of its call: its TTFT holds the failed attempts and their waits."""
    if not seen["calls"] or not (seen["timed"] or seen["limited"]):
        return None
    share = seen["late"] / seen["joined"] if seen["joined"] else 0.0
    # Waits alone are of a proxy or of the engine's front end as well: retries leave calls that fail, or calls of engines that no client records.
    signs = max(seen["failed"], seen["unclaimed"]) / seen["calls"]
    late = f"in {seen['late']:,} of {seen['joined']:,} calls the engine began long after its client did ({say_ratio(share)})"
    if share > ONE_PERCENT and signs > ONE_PERCENT:
        repeats = f"{seen['unclaimed']:,} calls of engines belong to no client's call, {seen['failed']:,} calls failed"
        return Check(
            check="hidden_retries",
            status="warn",
            detail=f"{late}, and {repeats}: attempts inside the client; record each attempt as a span",
        )
    if seen["limited"]:
        detail = f"{say_count(seen['limited'], 'call')} ended in a rate limit and no client counts its attempts: successful calls contain retries too"
        return Check(
            check="hidden_retries",
            status="warn",
            detail=detail + "; record attempts (HTTP client spans or retry counts)",
        )
    if seen["uncounted"]:
        detail = f"attempts are not recorded in {seen['uncounted']:,} of {seen['calls']:,} calls, and nothing indicates retries"
    else:
        detail = f"attempts are recorded in all {seen['calls']:,} calls"
    if share > ONE_PERCENT:
        detail += f". {late[0].upper()}{late[1:]}: a wait in a proxy or in the engine's front end, which their TTFT includes"
    return Check(check="hidden_retries", status="ok", detail=detail)


def _hidden_reasoning(seen: Mapping[str, int]) -> Check | None:
    if not seen["reasoning"]:
        return None
    share = seen["hidden"] / seen["calls"]
    detail = f"{seen['hidden']:,} of {seen['calls']:,} calls reason before the first visible chunk ({say_ratio(share)})"
    if share > ONE_PERCENT:
        detail += ": their TTFT includes the reasoning and their time per token is not given; stream reasoning chunks to separate the two"
    return Check(
        check="hidden_reasoning", status="warn" if share > ONE_PERCENT else "ok", detail=detail
    )


def _cached_tokens(seen: Mapping[str, int]) -> Check | None:
    """Some providers count cached tokens among the input tokens, some beside them; more cached than input is a sign of the second."""
    if not seen["cached"]:
        return None
    share = seen["cached_over"] / seen["cached"]
    detail = f"{seen['cached_over']:,} of {seen['cached']:,} calls report more cached tokens than input tokens ({say_ratio(share)})"
    if share > ONE_PERCENT:
        detail += ": the provider does not count cached tokens as input, so input lengths and hit rates are wrong; record the provider (gen_ai.provider.name)"
    return Check(
        check="cached_token_convention",
        status="ok" if share <= ONE_PERCENT else "fail" if share > FAIL_SHARE else "warn",
        detail=detail,
    )
