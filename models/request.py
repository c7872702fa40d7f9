"""Which request is to be predicted?

The border where a JSON object becomes a `Request`: types are checked once, here, and prompt text goes no further.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from overrun.models.errors import RequestError

MISSING: Final = math.nan
# Token counts above this are a unit mistake, not a request: the longest context windows on offer hold 10 M tokens.
_MAX_COUNT: Final = 1e9
# Names are remembered by the thousand (`overrun.models.history`), and may come from callers of callers; the collector stores 256 characters.
MAX_NAME: Final = 1_024


class Request(NamedTuple):
    """One request as the predictor sees it; a missing number is NaN, a missing name None.

    `time_s` is in seconds since 1970 UTC, the token counts in tokens, `stream` 0 or 1. `shape` are the numbers of
    `overrun.collector.normalise.prompt_shape.SHAPE` (empty without a prompt), `verbosity` is the score of `overrun.models.verbosity`.
    """

    time_s: float = MISSING
    route: str | None = None
    model: str | None = None
    input_tokens: float = MISSING
    max_tokens: float = MISSING
    temperature: float = MISSING
    stream: float = MISSING
    turn: float = MISSING
    session: str | None = None
    tenant: str | None = None
    prefix_hash: str | None = None
    shape: tuple[float, ...] = ()
    verbosity: float = MISSING


def parse_request(row: Mapping[str, Any]) -> Request:
    """Return the request described by one JSON object; every field may be absent or null, unknown fields are ignored.

    `time` is RFC 3339 text, a datetime, or seconds since 1970. `prompt` is accepted and
    not looked at: `overrun.models.predict` turns it into numbers where the artifact wants them.

    Raises:
        RequestError: a field has the wrong type or an impossible value; names the field, what was seen and what is
        wanted.
    """
    return Request(
        time_s=_time(row.get("time")),
        route=_text("route", row.get("route")),
        model=_text("model", row.get("model")),
        input_tokens=_number("input_tokens", row.get("input_tokens"), low=0),
        max_tokens=_number("max_tokens", row.get("max_tokens"), low=1),
        temperature=_number("temperature", row.get("temperature"), low=0),
        stream=_flag("stream", row.get("stream")),
        turn=_number("turn", row.get("turn"), low=0),
        session=_text("session", row.get("session")),
        tenant=_text("tenant", row.get("tenant")),
        prefix_hash=_text("prefix_hash", row.get("prefix_hash")),
    )


def parse_output_tokens(value: object) -> int:
    """Return `value` as a whole number of generated tokens.

    Raises:
        RequestError: it is missing, not a number, negative, or not finite.
    """
    number = _number("output_tokens", value, low=0)
    if math.isnan(number):
        raise RequestError(
            "output_tokens is missing; expected the number of tokens the finished request generated"
        )
    return int(number)


def _number(name: str, value: object, low: float) -> float:
    if value is None:
        return MISSING
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(
            f"{name} is {_kind(value)}; expected a number or null: send it without quotes"
        )
    if isinstance(value, float) and math.isnan(value):
        raise RequestError(f"{name} is NaN; expected a number, or null where it is not known")
    if not low <= value <= _MAX_COUNT:
        raise RequestError(
            f"{name} is out of range; expected a number from {low:g} to {_MAX_COUNT:g}: check its unit"
        )
    return float(value)


def _text(name: str, value: object) -> str | None:
    if isinstance(value, str) and len(value) > MAX_NAME:
        raise RequestError(
            f"{name} has {len(value):,} characters; expected at most {MAX_NAME:,}: send a hash of it"
        )
    if value is None or isinstance(value, str):
        return value or None
    raise RequestError(f"{name} is {_kind(value)}; expected text or null: send it in quotes")


def _flag(name: str, value: object) -> float:
    if value is None:
        return MISSING
    if isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1)):
        return float(value)
    raise RequestError(f"{name} is {_kind(value)}; expected true, false or null")


def _time(value: object) -> float:
    if value is None:
        return MISSING
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError as error:
            raise RequestError(
                "time is not a date; expected RFC 3339 such as 2026-01-31T08:00:00Z, or seconds"
            ) from error
    else:
        return _seconds(value)
    return _seconds((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"time is {_kind(value)}; expected RFC 3339 text or seconds since 1970")
    if isinstance(value, float) and math.isnan(value):
        raise RequestError(
            "time is NaN; expected RFC 3339 text, seconds since 1970, or null where it is not known"
        )
    # 2**33 s is the year 2242; a larger number is in milliseconds or nanoseconds.
    if not 0 <= value <= 2**33:
        raise RequestError(
            "time is out of range; expected a date from 1970 to 2242, or seconds since 1970: divide milliseconds by 1,000"
        )
    return float(value)


def _kind(value: object) -> str:
    """Name the JSON type of `value` without repeating it: a misplaced value may be prompt text."""
    names = {
        bool: "true or false",
        str: "text",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)
