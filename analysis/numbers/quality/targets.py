"""Which metrics targets answer, and what do they send that nobody understands? The state of each target, and the names that no table knows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, Literal

import duckdb
import msgspec

from overrun.analysis.numbers.quality.row import Check
from overrun.analysis.numbers.window import answers
from overrun.analysis.words.finding import printable, say_count
from overrun.analysis.words.times import rfc3339
from overrun.collector.normalise.metric_names import is_known, own_prefixes

State = Literal["up", "down", "unreadable", "slow", "unknown names"]
# A page that takes longer than this part of its interval holds up the next reading; own default.
_SLOW: Final = 0.5
_MOST_NAMES: Final = 6
# A target that does not answer is asked once a minute: its last answer from before a window still holds at its start.
_LATELY: Final = timedelta(seconds=150)
# What says whether a target answers; everybody's page has it, whatever else is understood of it.
_ABOUT_TARGETS: Final = ("up", "scrape_duration")


class Target(msgspec.Struct, kw_only=True):
    """One scraped target by its last attempts.

    `since` is when this state began, or the first attempt of all, `reason` why it is not up, `took_s` how long its page last took.
    """

    instance: str
    state: State
    reason: str
    since: datetime
    last: datetime
    attempts: int
    answered: int
    took_s: float | None
    reasons: dict[str, str] = {}


class UnknownMetrics(msgspec.Struct, kw_only=True):
    """What came under names that no table knows: how many points of how many metrics, by name with most points first, and from whom.

    `scraped` says that some came from a page, which is read because it is an engine's; else they are an application's own.
    """

    points: int = 0
    metrics: int = 0
    names: list[str] = []
    instances: list[str] = []
    scraped: bool = False


class Sent(msgspec.Struct, kw_only=True):
    """What arrived as metrics in a window: targets, unknown names, and per instance its service, models and indicators."""

    targets: list[Target] = []
    unknown: UnknownMetrics = msgspec.field(default_factory=UnknownMetrics)
    services: dict[str, str] = {}
    models: dict[str, list[str]] = {}
    indicators: dict[str, list[str]] = {}


def sent(con: duckdb.DuckDBPyConnection, start: datetime | None, end: datetime | None) -> Sent:
    """Return what targets and senders of metrics did in [start, end], either side open if None."""
    names = answers(con, "metric_names", {"start": start, "end": end})
    made = Sent(unknown=_unknown(names))
    for row in names:
        instance = str(row["instance"] or "")
        if row["known"] and row["indicator"] not in _ABOUT_TARGETS:
            made.services.setdefault(instance, str(row["service"]))
            _add(made.indicators, instance, row["indicator"])
            _add(made.models, instance, row["model"])
    strangers = {
        str(row["instance"] or "") for row in names if not row["known"]
    } - made.indicators.keys()
    made.targets = [
        _target(row, made, strangers)
        for row in answers(
            con, "targets", {"start": None if start is None else start - _LATELY, "end": end}
        )
    ]
    return made


def _add(to: dict[str, list[str]], instance: str, name: str | None) -> None:
    if name is not None and name not in to.setdefault(instance, []):
        to[instance].append(name)


def _target(row: dict[str, Any], made: Sent, strangers: set[str]) -> Target:
    instance = str(row["instance"] or "")
    state, reason = row["state"], row["reason"] or ""
    understood = any(is_part(name, instance) for name in made.indicators)
    if state == "up" and not understood and instance in strangers:
        state, reason = "unknown names", "its metric names are unknown"
    elif (
        state == "up"
        and row["took"] is not None
        and row["interval"] is not None
        and row["took"] > _SLOW * row["interval"]
    ):
        state, reason = "slow", f"its page takes {row['took']:.1f} s of {row['interval']:g} s"
    return Target(
        instance=instance,
        state=state,
        reason=reason,
        since=row["since"],
        last=row["last"],
        attempts=row["attempts"],
        answered=row["answered"],
        took_s=row["took"],
        reasons={} if row["took"] is not None else {"took_s": "the reader does not report it"},
    )


def is_part(instance: str, target: str) -> bool:
    """Whether an instance is a target's, or one of several behind it."""
    return instance == target or instance.startswith((f"{target}/", f"{target}#"))


def _unknown(names: list[dict[str, Any]]) -> UnknownMetrics:
    prefixes = own_prefixes(row["name"] for row in names)
    strange = [row for row in names if not row["known"] and not is_known(row["name"], prefixes)]
    by_name: dict[str, int] = {}
    for row in strange:
        by_name[row["name"]] = by_name.get(row["name"], 0) + row["points"]
    return UnknownMetrics(
        points=sum(by_name.values()),
        metrics=len(by_name),
        names=sorted(by_name, key=lambda name: (-by_name[name], name)),
        instances=sorted({str(row["instance"] or "") for row in strange}),
        scraped=any(row["scraped"] for row in strange),
    )


def say_unknown(unknown: UnknownMetrics) -> str:
    """Return what to know of the names that no table knows, and what to do."""
    shown = ", ".join(printable(name) for name in unknown.names[:_MOST_NAMES])
    more = f" and {unknown.metrics - _MOST_NAMES} more" if unknown.metrics > _MOST_NAMES else ""
    return f"{say_count(unknown.points, 'point')} of {say_count(unknown.metrics, 'metric')} have unknown names: {shown}{more}. Map them under [metrics] in overrun.toml"


def say_target(target: Target) -> str:
    """Return one target in a few words: `gpu-0:8000 down since 2026-11-20T10:05:00Z (connection refused)`."""
    why = f" ({printable(target.reason)})" if target.reason else ""
    since = f" since {rfc3339(target.since)}" if target.state != "up" else ""
    return f"{printable(target.instance)} {target.state}{since}{why}"


def silent(targets: list[Target]) -> list[Target]:
    """Return the targets that give nothing: down, or without a readable page."""
    return [target for target in targets if target.state in ("down", "unreadable")]


def checks(made: Sent, *, with_requests: bool) -> list[Check]:
    """Return the data checks of targets and names; an application's own metrics beside its requests are no fault."""
    found = []
    if made.targets:
        wrong = [target for target in made.targets if target.state != "up"]
        detail = "; ".join(say_target(target) for target in wrong[:3]) + (
            f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        )
        gone = silent(made.targets)
        found.append(
            Check(
                check="targets",
                status="fail" if gone else "warn" if wrong else "ok",
                detail=f"{len(wrong)} of {say_count(len(made.targets), 'target')} with problems: {detail}"
                if wrong
                else f"{say_count(len(made.targets), 'target')} answered until the end",
            )
        )
    if made.unknown.metrics:
        aside = with_requests and not made.unknown.scraped
        found.append(
            Check(
                check="unknown_metrics",
                status="ok" if aside else "warn",
                detail=say_unknown(made.unknown),
            )
        )
    return found
