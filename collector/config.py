"""What may be set, where, and within which bounds? Settings of the collector, read from flag > environment > file > default.

One TOML file, one table per concern; a key that nobody knows stops the start, with the nearest known one named.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from overrun.collector.custom_dialect import own_dialect
from overrun.collector.dialects import Dialect
from overrun.collector.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """`[collector]`: where it listens and how much it takes in."""

    host: str = "127.0.0.1"
    grpc_port: int = 4317
    http_port: int = 4318
    db: str = "overrun.db"
    store: str = (
        ""  # a lake in place of the file: ducklake:postgresql://USER@HOST:PORT/DATABASE?data=FOLDER
    )
    role: str = "all"  # what this process does with a lake
    max_body_mib: int = 16  # of one request, as sent
    max_decompressed_mib: int = 16  # of one request, decompressed
    body_timeout_s: float = 30.0  # a body that has not come by then is given up
    max_attributes: int = (
        128  # of one span, event, link, resource or data point; OpenTelemetry's own default
    )
    max_attribute_length: int = 16_384  # characters of one value
    max_depth: int = 16  # of arrays and maps in one value
    cors_origins: tuple[str, ...] = ()  # web pages that may send, such as https://app.example.com
    queue_mib: int = 16  # bodies waiting for the writer (and as much again still arriving); beyond it senders are asked to come again
    max_body_items: int = 500_000  # spans, attributes, points, buckets ... of one request; a scope counts 16, a data point 8
    queue_items: int = 1_000_000  # of all requests that are being read or stored
    waiting_mib: int = 64  # traces that wait to become requests, 400 bytes each; beyond it senders are asked to come again
    max_connections: int = 512  # of one port
    # Of the process, without files that it maps: above the first line no new body is taken, above the second none is read on. Raise both with memory_limit.
    memory_soft_mib: int = 1_280  # 0: no line
    memory_hard_mib: int = 1_536
    commit_mib: int = 4  # bodies of one commit, about 10,000 spans of 400 bytes: they take ten times that while they are decoded
    tls_cert: str = ""  # PEM files; with both, every port speaks TLS
    tls_key: str = ""
    tls_client_ca: str = ""  # with it, only clients with a certificate of this authority may come
    api_port: int = -1  # of the query API and metrics; -1: on the HTTP port
    api_host: str = ""  # where that port listens; empty: as `host`
    # Bearer tokens, instead of the environment: lines `ingest=...`, `read=...` and `erase=...`; a line without a name is the token of the first two.
    token_file: str = ""
    # Names by which the HTTP ports may be asked, beside those of this machine; on a port beyond loopback any name will do unless some are listed.
    allowed_hosts: tuple[str, ...] = ()
    audit_log: str = ""  # a JSON line for each erasing and export; empty: `<db>.audit.jsonl`
    log_format: str = "text"  # or json
    decoder: str = "fast"  # or upb: protobuf's own, several times slower, should the fast one ever fail on something
    quiet_s: float = 2.0  # a trace is assembled this long after its last span
    # A trace that never goes quiet is assembled as far as it has come after so long, and again at its end: longer than any single call of a provider.
    max_trace_age_s: float = 900.0
    # Of DuckDB, which fills it with blocks of the file and spills to disk beyond it. A report over a million requests costs the same with 160 MB and 1 GB.
    memory_limit: str = "256MB"


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """`[privacy]`: what of people's words and names is stored."""

    store_text: bool = False
    prompt_features: bool = False  # store counts of a prompt's shape in place of its text
    prompt_table: str = ""  # a trained predictor's folder: with it, also the verbosity score
    hash_users: bool = True
    keep_long: tuple[str, ...] = ()  # attribute keys whose text may be longer than 128 characters
    # Of which attributes text is kept: "all" that is no sentence and not private, or those that are "known" to a vocabulary (and words of enumerations).
    attributes: str = "all"


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """`[retention]`: what is let go, by when it was received, oldest first."""

    max_age_days: float = 30.0  # 0: for ever
    db_max_size: str = "20GB"  # of the file; 0: as large as the disk
    check_s: float = 60.0


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """`[answers]`: how much an answer reads."""

    # Of a window with more requests than this a sample is read, and counts and percentiles are counted by the database.
    most_requests: int = 100_000


@dataclass(frozen=True, slots=True)
class FormSettings:
    """`[forms]`: how files of other tools are read."""

    folder: str = ""  # of your own forms, NAME.sql, which are tried before those that are known


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. `words` are the operator's own attributes, stage rules and metrics ([attributes], [[stages]] and [metrics]). `slo`, `budgets`, `prices`,
    `dashboard`, `scrape` and `alerts` are handed on unread: their users know what they mean."""

    collector: CollectorSettings = field(default_factory=CollectorSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    answers: AnswerSettings = field(default_factory=AnswerSettings)
    forms: FormSettings = field(default_factory=FormSettings)
    slo: Mapping[str, Any] = field(default_factory=dict)
    budgets: Mapping[str, Any] = field(default_factory=dict)
    prices: Mapping[str, Any] = field(default_factory=dict)
    dashboard: Mapping[str, Any] = field(default_factory=dict)
    words: Dialect | None = None
    scrape: Mapping[str, Any] = field(default_factory=dict)
    alerts: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


_TABLES: dict[
    str,
    type[CollectorSettings]
    | type[PrivacySettings]
    | type[RetentionSettings]
    | type[AnswerSettings]
    | type[FormSettings],
] = {
    "collector": CollectorSettings,
    "privacy": PrivacySettings,
    "retention": RetentionSettings,
    "answers": AnswerSettings,
    "forms": FormSettings,
}
_FREE_TABLES = ("slo", "budgets", "prices", "dashboard", "scrape", "alerts")
_BOUNDS: dict[str, tuple[float, float]] = {
    "most_requests": (1_000, 1_000_000_000),
    "grpc_port": (0, 65_535),
    "http_port": (0, 65_535),
    "max_body_mib": (1, 256),
    "max_decompressed_mib": (1, 1_024),
    "body_timeout_s": (0.1, 3_600),
    "max_attributes": (1, 1_024),
    "max_attribute_length": (16, 1 << 24),
    "max_depth": (1, 64),
    "queue_mib": (1, 4_096),
    "max_body_items": (1_000, 100_000_000),
    "queue_items": (1_000, 1_000_000_000),
    "waiting_mib": (1, 1 << 20),
    "max_connections": (8, 65_536),
    "memory_soft_mib": (0, 1 << 20),
    "memory_hard_mib": (0, 1 << 20),
    "commit_mib": (1, 256),
    "quiet_s": (0.05, 3_600),
    "max_trace_age_s": (1, 86_400),
    "api_port": (-1, 65_535),
    "max_age_days": (0, 36_500),
    "check_s": (0.05, 86_400),
}
_CHOICES = {
    "log_format": ("text", "json"),
    "decoder": ("fast", "upb"),
    "attributes": ("all", "known"),
    "role": ("all", "collector", "assembler", "maintainer", "reader"),
}


def load(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings from flags (`{"collector.http_port": 0}`; None means not given), OVERRUN_* variables, the TOML file, and defaults.

    Raises:
        ConfigError: unknown table or key (names the nearest known one), wrong type, out of range, unreadable file.
    """
    document = _read(path)
    environment = os.environ if environment is None else environment
    origins: dict[str, str] = {}
    built: dict[str, Any] = {}
    for table, kind in _TABLES.items():
        known = {f.name: f for f in fields(kind)}
        values: dict[str, Any] = {}
        for key, value in _table(document, table).items():
            if key not in known:
                raise ConfigError(f"{path}: unknown key [{table}] {key}{_nearest(key, known)}")
            values[key], origins[f"{table}.{key}"] = value, f"file {path}"
        for key in known:
            variable = f"OVERRUN_{key.upper()}"
            if environment.get(variable):
                values[key], origins[f"{table}.{key}"] = (
                    environment[variable],
                    f"environment {variable}",
                )
            flag = (flags or {}).get(f"{table}.{key}")
            if flag is not None:
                values[key], origins[f"{table}.{key}"] = flag, "flag"
        checked = {
            k: _checked(f"[{table}] {k}", v, getattr(kind(), k), origins[f"{table}.{k}"])
            for k, v in values.items()
        }
        built[table] = replace(kind(), **checked)
    free = {name: _table(document, name) for name in _FREE_TABLES}
    words = own_dialect(document, path)
    return Settings(
        collector=built["collector"],
        privacy=built["privacy"],
        retention=built["retention"],
        answers=built["answers"],
        forms=built["forms"],
        words=words,
        origins=origins,
        **free,
    )


def _read(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    known = [*_TABLES, *_FREE_TABLES, "attributes", "stages", "metrics"]
    for name in document:
        if name not in known:
            raise ConfigError(f"{path}: unknown table [{name}]{_nearest(name, known)}")
    return document


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{name} = {table!r} is a value, but [{name}] is a table of settings")
    return table


def _nearest(key: str, known: Any) -> str:
    close = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
    return f": did you mean {close[0]}?" if close else f"; known are {', '.join(sorted(known))}"


def _checked(name: str, value: Any, default: Any, origin: str) -> Any:
    """The value in the default's type and within its bounds; texts (environment) are read as that type."""
    wanted = type(default)
    if wanted is tuple:
        return _texts(name, value, origin)
    if isinstance(value, str) and wanted is not str:
        value = _from_text(name, value, wanted, origin)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not wanted:
        raise ConfigError(
            f"{name} = {value!r} ({origin}) is {type(value).__name__}, expected {wanted.__name__} such as {default!r}"
        )
    choices = _CHOICES.get(name.rsplit(" ", 1)[-1])
    if choices and value not in choices:
        raise ConfigError(f"{name} = {value!r} ({origin}) is not known: use {' or '.join(choices)}")
    low, high = _BOUNDS.get(name.rsplit(" ", 1)[-1], (None, None))
    if low is not None and high is not None and not low <= value <= high:
        raise ConfigError(f"{name} = {value} ({origin}) is out of range: {low:g} to {high:g}")
    return value


def _texts(name: str, value: Any, origin: str) -> tuple[str, ...]:
    """A list of texts; one text (environment, flag) is split at its commas."""
    found = (
        [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, str)
        else value
    )
    if not isinstance(found, list | tuple) or not all(isinstance(item, str) for item in found):
        raise ConfigError(
            f'{name} = {value!r} ({origin}) is not a list of texts such as ["one", "two"]'
        )
    return tuple(found)


def _from_text(name: str, text: str, wanted: type, origin: str) -> Any:
    if wanted is bool:
        known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
        if text.lower() not in known:
            raise ConfigError(
                f"{name} = {text!r} ({origin}) is not a truth value: use true or false"
            )
        return known[text.lower()]
    try:
        return wanted(text)
    except ValueError as error:
        raise ConfigError(
            f"{name} = {text!r} ({origin}) is not {'a whole number' if wanted is int else 'a number'}"
        ) from error


# Of an address: what stands between the user's name and the `@`.
_PASSWORD = re.compile(r"(?<=//)([^:@/\s]*):[^@/\s]+(?=@)")


def described(settings: Settings) -> list[str]:
    """Every setting as `[table] key = value  (origin)`, one per line."""
    out = []
    for table in _TABLES:
        built = getattr(settings, table)
        for f in fields(built):
            origin = settings.origins.get(f"{table}.{f.name}", "default")
            shown = _PASSWORD.sub(r"\1:***", repr(getattr(built, f.name)))
            out.append(f"[{table}] {f.name} = {shown}  ({origin})")
    for table in _FREE_TABLES:
        free: Mapping[str, Any] = getattr(settings, table)
        out += [f"[{table}] {key} = {value!r}  (file)" for key, value in free.items()]
    if settings.words is not None:
        out += [
            f"[attributes] {f.key}{''.join(f'.{step}' for step in f.path)} = {f.column!r}  (file)"
            for f in settings.words.fields
        ]
        out += [
            f"[[stages]] {mark.stage}: attribute {mark.key!r} {sorted(mark.values) or 'with any value'}  (file)"
            for mark in settings.words.marks
        ]
        out += [
            f"[[stages]] {name.stage}: name matching {name.pattern!r} under scope {name.scope or 'any'!r}  (file)"
            for name in settings.words.names
        ]
        for m in settings.words.metrics:
            out.append(
                f"[metrics] {m.name} = {m.indicator!r}, times {m.scale:g}{f' where {dict(m.where)}' if m.where else ''}  (file)"
            )
    return out
