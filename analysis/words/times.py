"""Which moment or span of time does a text mean? As people, logs and dashboards write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from overrun.analysis.words.errors import WindowError

_UNITS: Final = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|min|s|m|h|d|w)")
# Spans from after 2200 are set aside, and none is from before 1970.
_YEARS: Final = (1970, 2200)
_A_DURATION: Final = re.compile(rf"({_DURATION.pattern})+")
_EPOCH: Final = re.compile(r"(\d{9,19})(?:\.\d+)?")
_CLOCK: Final = re.compile(r"\d{2}:\d{2}(:\d{2}(\.\d+)?)?")
_DATED: Final = re.compile(
    r"\d{4}([-/])\d{2}\1\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?( ?(Z|UTC|GMT|[+-]\d{2}(:?\d{2})?))?)?",
    re.IGNORECASE,
)
# As reports print it: `25 Nov 20:41:38`, also with a year or UTC behind it.
_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
)
_PRINTED: Final = re.compile(
    rf"(?P<day>\d{{1,2}}) (?P<month>{'|'.join(_MONTHS)})[a-z]*\.?(?: (?P<year>\d{{4}}))?(?:,? (?P<clock>\d{{2}}:\d{{2}}(?::\d{{2}})?))?(?P<zone> (?:UTC|GMT))?",
    re.IGNORECASE,
)
_ZONED: Final = re.compile(r":\d{2}([.,]\d+)?\s*[+-]\d{2}(:?\d{2})?$")
_TIMES_READ: Final = "2026-11-20T10:00:00Z, '2026-11-20 10:00' (this machine's zone), 1795168800 (s or ms since 1970), -2h or now"


def parse_duration(text: str) -> timedelta:
    """Read `90s`, `15m`, `1h30m`, `7d` into a duration above zero.

    Raises:
        WindowError: anything else, with examples of what is read.
    """
    cleaned = text.strip().lower()
    parts = _DURATION.findall(cleaned)
    if not parts or "".join(number + unit for number, unit in parts) != cleaned:
        raise WindowError(
            f"{text!r} is no duration: write a number and a unit such as 90s, 15m, 1h30m or 7d"
        )
    try:
        duration = timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
    except OverflowError:
        duration = timedelta(0)
    if not timedelta(0) < duration < timedelta(days=36_500):
        raise WindowError(f"duration {text!r} must be above zero and below 100 years")
    return duration


def parse_time(text: str, now: datetime) -> datetime:
    """Read a moment; returned in UTC.

    Read are RFC 3339 (a time without a zone is of this machine's zone, a date alone is its midnight), seconds or milliseconds since 1970, `now`,
    a time before now (`-2h`, `2h`, `now-2h`), a time of day (`10:04`, the last one), and what reports print (`25 Nov 20:41:38`).

    Raises:
        WindowError: no such time.
    """
    cleaned = text.strip()
    try:
        time = _before_now(cleaned, now) or _epoch(cleaned) or _written(cleaned, now)
        if time is not None:
            time = time.astimezone(UTC)
            if not _YEARS[0] <= time.year < _YEARS[1]:
                raise ValueError(f"years from {_YEARS[0]} to before {_YEARS[1]} are kept")
            return time
    except (ValueError, OverflowError, OSError) as error:
        raise WindowError(
            f"{text[:64]!r} is no time that can be asked for ({error}): write for example {_TIMES_READ}"
        ) from error
    raise WindowError(f"{text[:64]!r} is no time: write for example {_TIMES_READ}")


def _before_now(text: str, now: datetime) -> datetime | None:
    """`now`, `-2h`, `2h` and `now-2h`."""
    lowered = text.lower().replace(" ", "")
    if lowered == "now":
        return now
    span = lowered.removeprefix("now").removeprefix("-")
    if lowered.startswith(("now-", "-")) or _A_DURATION.fullmatch(lowered):
        return now - parse_duration(span)
    return None


def _epoch(text: str) -> datetime | None:
    """Seconds since 1970, or milliseconds, microseconds and nanoseconds, told apart by their digits (the year 2200 has ten digits of seconds)."""
    number = _EPOCH.fullmatch(text)
    if number is None:
        return None
    per_second = 1_000 ** max(0, -(-(len(number[1]) - 10) // 3))
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=float(text) / per_second)


def _written(text: str, now: datetime) -> datetime | None:
    """A date and time as people and logs write them."""
    local = now.astimezone()
    if _CLOCK.fullmatch(text):
        at = datetime.fromisoformat(f"{local:%Y-%m-%d}T{text}").astimezone()
        return at if at <= now else at - timedelta(days=1)
    if printed := _PRINTED.fullmatch(text):
        return _as_printed(printed, now)
    if not _DATED.fullmatch(text):
        return None
    read = text.upper().replace("/", "-").removesuffix(" UTC").removesuffix(" GMT")
    zone = "+00:00" if len(read) < len(text) else ""
    read = re.sub(r"\s*([+-]\d{2}):?(\d{2})?$", r"\1:\2", read) if _ZONED.search(read) else read
    read = re.sub(r"(?<=[+-]\d{2}:)$", "00", read.replace(",", "."))
    return datetime.fromisoformat(read.replace(" ", "T", 1) + zone).astimezone()


def _as_printed(text: re.Match[str], now: datetime) -> datetime:
    """A day and a month's name; without a year it is the last such day."""
    clock = f"{text['clock'] or '00:00'}:00"[:8]
    month = _MONTHS.index(text["month"].lower()) + 1
    zone = "+00:00" if text["zone"] else ""
    year = int(text["year"] or now.astimezone().year)
    at = datetime.fromisoformat(
        f"{year:04}-{month:02}-{int(text['day']):02}T{clock}{zone}"
    ).astimezone()
    return at if text["year"] or at <= now else at.replace(year=year - 1)


def parse_range(text: str, now: datetime) -> tuple[datetime, datetime]:
    """Read `FROM..TO` (each as in `parse_time`; an empty TO means now) into (start, end), start before end.

    Raises:
        WindowError: no `..`, an unreadable side, or an end that is not behind the start.
    """
    left, dots, right = text.partition("..")
    if not dots or not left.strip():
        raise WindowError(
            f"{text!r} is no range: write FROM..TO such as 2026-11-20T10:00:00Z..2026-11-20T11:00:00Z or -2h..-1h"
        )
    start, end = parse_time(left, now), parse_time(right or "now", now)
    if start >= end:
        raise WindowError(
            f"range {text!r} is empty: its start {rfc3339(start)} is not before its end {rfc3339(end)}"
        )
    return start, end


def rfc3339(time: datetime) -> str:
    """Return a time as RFC 3339 in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def absolute(text: str, now: datetime) -> str:
    """Return a moment or range FROM..TO with what is of this machine's zone in UTC, for a server that may stand in another; any other text as it is."""
    if ".." in text:
        return "..".join(absolute(side, now) for side in text.split(".."))
    try:
        local = any(form.fullmatch(text.strip()) for form in (_CLOCK, _DATED, _PRINTED))
        return rfc3339(parse_time(text, now)) if local else text
    except WindowError:
        return text  # the server refuses it in the same words
