"""`[alerts]`: which receivers get messages, from which severity on, and when none is sent. Addresses come from the settings file alone, keys from files.

Unknown keys, receivers without an address and windows that cannot be read stop the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from overrun.analysis.words.errors import AnalysisError, nearest
from overrun.analysis.words.finding import Severity
from overrun.analysis.words.times import parse_duration
from overrun.collector.errors import ConfigError

Kind = Literal["alertmanager", "webhook", "slack", "pagerduty", "opsgenie", "email"]
Group = Literal["requests", "early", "targets", "data", "predictor"]
SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warning", "critical")
GROUPS: Final[tuple[Group, ...]] = get_args(Group)
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_URLS: Final = {
    "pagerduty": "https://events.pagerduty.com",
    "opsgenie": "https://api.opsgenie.com",
}
_KEYED: Final = ("pagerduty", "opsgenie")
# `key_file` holds a routing key, an API key, a password or a bearer token; `url_file` an address that is a secret itself, as Slack's is.
_RECEIVER_KEYS: Final = (
    *("kind", "name", "url", "url_file", "key_file", "min_severity", "groups"),
    *("host", "port", "user", "tls", "from", "to"),
)
_KEYS: Final = ("every", "resolve_after", "since", "link", "receivers", "mute")
_TLS: Final = ("starttls", "tls", "none")


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where messages go. `smtp` settings are of e-mail alone; `groups` are the incidents that it gets."""

    kind: Kind
    name: str
    url: str = ""
    url_file: Path | None = None
    key_file: Path | None = None
    min_severity: Severity = "warning"
    groups: tuple[Group, ...] = GROUPS
    host: str = ""
    port: int = 587
    user: str = ""
    tls: str = "starttls"
    sender: str = ""
    to: tuple[str, ...] = ()

    def takes(self, group: str, severity: str) -> bool:
        """Whether an incident is meant for it."""
        enough = SEVERITIES.index(self.min_severity)
        return group in self.groups and SEVERITIES.index(severity) >= enough  # type: ignore[arg-type]

    def key(self) -> str:
        """The secret in its file; read again each time, since keys are replaced. Empty without a file."""
        return "" if self.key_file is None else self.key_file.read_text(encoding="utf-8").strip()

    def address(self) -> str:
        """The address, from the settings or from its file."""
        if self.url_file is None:
            return self.url
        return _url(self.url_file.read_text(encoding="utf-8").strip(), "url_file")


@dataclass(frozen=True, slots=True)
class Mute:
    """When nothing is sent: every week at the same hours of `zone`, or once."""

    days: tuple[int, ...] = tuple(range(7))
    start: time = time(0)
    end: time = time(0)
    zone: str = "UTC"
    once: tuple[datetime, datetime] | None = None
    groups: tuple[Group, ...] = GROUPS

    def covers(self, group: str, now: datetime) -> bool:
        """Whether incidents of a group are muted at a moment. A night that begins on a listed day lasts into the next one."""
        if group not in self.groups:
            return False
        if self.once is not None:
            return self.once[0] <= now < self.once[1]
        local = now.astimezone(ZoneInfo(self.zone))
        at, day = local.time(), local.weekday()
        if self.start < self.end:
            return day in self.days and self.start <= at < self.end
        before = (local - timedelta(days=1)).weekday()
        return (day in self.days and at >= self.start) or (before in self.days and at < self.end)


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """The whole table; without receivers nothing is evaluated. `since_s` is the window that a report judges."""

    every_s: float = 60.0
    resolve_after_s: float = 900.0
    since_s: float = 900.0
    link: str = ""
    receivers: tuple[Receiver, ...] = ()
    mutes: tuple[Mute, ...] = field(default=())


def read(table: Mapping[str, Any]) -> AlertSettings:
    """The settings of a table.

    Raises:
        ConfigError: an unknown key or a value that cannot be read; names it and the nearest known one.
    """
    _known(table, _KEYS, "[alerts]")
    receivers = [
        _receiver(entry, n) for n, entry in enumerate(_tables(table, "receivers"), start=1)
    ]
    names = [receiver.name for receiver in receivers]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"[[alerts.receivers]] name = {twice[0]!r} stands twice")
    link = str(table.get("link", ""))
    return AlertSettings(
        every_s=_seconds(table, "every", 60.0, 1.0, 3_600.0),
        resolve_after_s=_seconds(table, "resolve_after", 900.0, 0.0, 86_400.0),
        since_s=_seconds(table, "since", 900.0, 60.0, 86_400.0),
        link=_url(link, "link") if link else "",
        receivers=tuple(receivers),
        mutes=tuple(_mute(entry) for entry in _tables(table, "mute")),
    )


def _receiver(entry: Mapping[str, Any], number: int) -> Receiver:
    where = f"[[alerts.receivers]] {number}"
    _known(entry, _RECEIVER_KEYS, where)
    kind = entry.get("kind")
    if kind not in _KINDS:
        raise ConfigError(f"{where}: kind = {kind!r} is unknown: {nearest(str(kind), _KINDS)}")
    severity = entry.get("min_severity", "warning")
    if severity not in SEVERITIES:
        raise ConfigError(
            f"{where}: min_severity = {severity!r} is none of {', '.join(SEVERITIES)}"
        )
    url = str(entry.get("url", _URLS.get(str(kind), "")))
    receiver = Receiver(
        kind=kind,
        name=str(entry.get("name", f"{kind}-{number}")),
        url=_url(url, where) if url else "",
        url_file=_path(entry, "url_file"),
        key_file=_path(entry, "key_file"),
        min_severity=severity,
        groups=_groups(entry, where),
        host=str(entry.get("host", "")),
        port=int(entry.get("port", 587)),
        user=str(entry.get("user", "")),
        tls=str(entry.get("tls", "starttls")),
        sender=str(entry.get("from", "")),
        to=tuple(str(one) for one in entry.get("to", ())),
    )
    _complete(receiver, where)
    return receiver


def _complete(receiver: Receiver, where: str) -> None:
    """Refuse a receiver that no message could reach."""
    if receiver.kind == "email":
        if not (receiver.host and receiver.sender and receiver.to) or receiver.tls not in _TLS:
            raise ConfigError(
                f"{where}: an e-mail needs host, from and to, and tls = {' or '.join(_TLS)}"
            )
        lines = (receiver.sender, *receiver.to)
        if any("\n" in line or "\r" in line or "@" not in line for line in lines):
            raise ConfigError(f"{where}: from and to are addresses such as on-call@example.com")
    elif not receiver.url and receiver.url_file is None:
        raise ConfigError(f"{where}: url is missing (or url_file, where the address is a secret)")
    if receiver.kind in _KEYED and receiver.key_file is None:
        raise ConfigError(f"{where}: key_file is missing: a file with the key of {receiver.kind}")


def _mute(entry: Mapping[str, Any]) -> Mute:
    where = "[[alerts.mute]]"
    _known(entry, ("days", "from", "to", "zone", "groups"), where)
    start, end = str(entry.get("from", "00:00")), str(entry.get("to", "00:00"))
    try:
        zone = str(entry.get("zone", "UTC"))
        ZoneInfo(zone)
        days = tuple(_DAYS.index(str(day).lower()[:3]) for day in entry.get("days", _DAYS))
        groups = _groups(entry, where)
        if "-" in start:
            moments = [datetime.fromisoformat(text) for text in (start, end)]
            once = [m if m.tzinfo else m.replace(tzinfo=ZoneInfo(zone)) for m in moments]
            return Mute(
                zone=zone, once=(once[0].astimezone(UTC), once[1].astimezone(UTC)), groups=groups
            )
        hours = [time.fromisoformat(text) for text in (start, end)]
    except (ValueError, ZoneInfoNotFoundError, TypeError) as error:
        raise ConfigError(
            f'{where}: {error}: write days = ["sat", "sun"], from = "22:00", to = "06:00", zone = "Europe/Vienna", or two dates with times'
        ) from error
    return Mute(days, hours[0], hours[1], zone, None, groups)


def _groups(entry: Mapping[str, Any], where: str) -> tuple[Group, ...]:
    given = entry.get("groups", GROUPS)
    for name in given:
        if name not in GROUPS:
            raise ConfigError(f"{where}: groups has {name!r}: {nearest(str(name), GROUPS)}")
    return tuple(given)


def _tables(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ConfigError(f"[alerts] {key} is not a list of tables: write [[alerts.{key}]]")
    return found


def _known(table: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in keys:
            raise ConfigError(f"{where}: unknown key {key!r}: {nearest(key, keys)}")


def _path(entry: Mapping[str, Any], key: str) -> Path | None:
    return Path(str(entry[key])) if key in entry else None


def _seconds(
    table: Mapping[str, Any], key: str, default: float, least: float, most: float
) -> float:
    if key not in table:
        return default
    try:
        value = parse_duration(str(table[key])).total_seconds()
    except AnalysisError as error:
        raise ConfigError(f"[alerts] {key} = {table[key]!r}: {error}") from error
    if not least <= value <= most:
        raise ConfigError(
            f"[alerts] {key} = {table[key]!r} is not between {least:g} and {most:g} s"
        )
    return value


def _url(text: str, where: str) -> str:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"[alerts] {where}: an address is not of the form https://host/path")
    return text.rstrip("/")
