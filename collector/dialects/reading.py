"""How is a vocabulary written? The one reader of the TOML files in this folder and of [attributes], [[stages]] and [metrics] of a user's settings.

    [attributes]
    "acme.tokens.in" = "input_tokens"
    "acme.first_token_ms" = { field = "ttft", unit = "ms" }
    "acme.usage" = [{ field = "output_tokens", path = "usage.out" }, { field = "cached_tokens", path = "usage.cached" }]

A mistake names its place, what was wrong and the nearest known word.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from overrun.collector.dialects.words import (
    READERS,
    Dialect,
    EventField,
    Field,
    Mark,
    Metric,
    SpanName,
)
from overrun.collector.errors import ConfigError

Table: TypeAlias = Mapping[str, Any]

_INTS: Final = "input_tokens output_tokens total_tokens cached_tokens cache_write_tokens reasoning_tokens max_tokens turn attempts"
_TEXTS: Final = "operation model provider response_id error_type route session tenant workload prefix_hash depends_on"
# Field -> canonical column and the reader that it has if none is named. Times need a unit instead.
FIELDS: Final = {
    **{name: (name, "int") for name in _INTS.split()},
    **{name: (name, "text") for name in _TEXTS.split()},
    "user": ("user_hash", "text"),
    "finish_reason": ("finish_reason", "first"),
    "http_status": ("http_status", "status"),
    "temperature": ("temperature", "float"),
    "streaming": ("streaming", "bool"),
}
TIMES: Final = {f: f"{f}_ns" for f in ("ttft", "queue", "prefill", "decode", "engine_e2e")}
UNITS: Final = {"s": "seconds", "ms": "millis", "text": "duration", "time": "moment"}
# Unit of a metric's values -> what makes the indicator's SI unit of it: seconds, ratios from 0 to 1, bytes, hertz.
SCALES: Final = {
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "percent": 1e-2,
    "ratio": 1.0,
    "bytes": 1.0,
    "MiB": float(1 << 20),
    "GiB": float(1 << 30),
    "MHz": 1e6,
}
# What a rule makes of a span besides a stage -> role and stage: a model call, a request at an engine, time that counts where no child covers it, a turn of a session, nothing.
_ROLES: Final = {
    "model_call": ("llm", "generation"),
    **{role: (role, "other") for role in ("engine", "container", "turn")},
    "ignore": ("folded", "other"),
    "write": ("write", "post"),
}
_STAGES: Final = (
    *("network", "gateway", "retrieval", "prompt", "guardrail", "queue", "kv_transfer", "prefill"),
    *("decode", "tool", "post", "wait_user", "other"),
)
_FIRST: Final = -100  # rank of a user's fields: before everybody's

_KINDS: Final = {"text": str, "number": int, "true or false": bool, "list of texts": list}
# Key -> kind of its value, of each table.
_FIELD_KEYS: Final = {
    **dict.fromkeys(("field", "unit", "reader", "path", "beside"), "text"),
    "rank": "number",
    "plus": "list of texts",
    "served": "true or false",
}
_STAGE_KEYS: Final = {
    **dict.fromkeys(("stage", "attribute", "value", "name", "pattern", "scope", "beside"), "text"),
    **dict.fromkeys(("phase", "weak", "strong", "client"), "true or false"),
    **dict.fromkeys(("values", "scopes"), "list of texts"),
}
_METRIC_KEYS: Final = {
    **dict.fromkeys(("indicator", "unit", "scope", "sum_as"), "text"),
    "where": "",
    "labels": "list of texts",
    "adds": "true or false",
}
_EVENT_KEYS: Final = {
    **dict.fromkeys(("event", "attribute", "field", "unit", "reader"), "text"),
    "failed": "true or false",
}
_LISTS: Final = (
    *("prefixes", "scopes", "first_token_events", "chunk_events", "attempt_events", "answers"),
    *("text_keys", "cached_apart", "names_tasks", "model_labels"),
)
_DIALECT_KEYS: Final = {
    "name": "text",
    **dict.fromkeys(("order", "precedence"), "number"),
    "exceptions_fail": "true or false",
    **dict.fromkeys(_LISTS, "list of texts"),
    **dict.fromkeys(("attributes", "stages", "metrics", "events"), ""),
    **dict.fromkeys(("failures", "stored_answers", "hints", "wrappers"), ""),
}


def vocabulary(said: Table, where: str) -> Dialect:
    """The vocabulary of one file of this folder.

    Raises:
        ConfigError: a key, field, unit, reader or stage that nobody knows (names the nearest known one), or a value of the wrong kind.
    """
    _check(where, said, _DIALECT_KEYS)
    _check(where, said.get("hints", {}), dict.fromkeys((*FIELDS, *TIMES), "text"))
    kept = {key: said[key] for key in ("name", "precedence", "exceptions_fail") if key in said}
    lists: dict[str, Any] = {key: tuple(said[key]) for key in _LISTS if key in said}
    rules = stages(where, said.get("stages", []))
    return Dialect(
        **kept,
        **lists,
        fields=attributes(where, said.get("attributes", {})),
        marks=tuple(rule for rule in rules if isinstance(rule, Mark)),
        names=tuple(rule for rule in rules if isinstance(rule, SpanName)),
        event_fields=tuple(_event(f"{where}: events", one) for one in said.get("events", [])),
        failures=tuple((k, frozenset(v)) for k, v in said.get("failures", {}).items()),
        stored_answers=tuple(
            tuple(_condition(f"{where}: stored_answers", one) for one in each)
            for each in said.get("stored_answers", [])
        ),
        hints=tuple(said.get("hints", {}).items()),
        wrappers=tuple((scope, name) for scope, name in said.get("wrappers", [])),
        metrics=metrics(where, said.get("metrics", {})),
    )


def attributes(where: str, table: object, own: bool = False) -> tuple[Field, ...]:
    """The fields of [attributes]; a user's `own` come before everybody's. Errors as in `vocabulary`."""
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"{where}: attributes = {table!r} is a value, but [attributes] is a table of attribute names and their fields"
        )
    return tuple(
        _field(f"{where}: [attributes] {key!r}", key, one, _FIRST + i if own else 0)
        for key, meaning in _flat(table).items()
        for i, one in enumerate(_several(f"{where}: [attributes] {key!r}", meaning, "field"))
    )


def stages(where: str, rules: object, own: bool = False) -> list[Mark | SpanName]:
    """The rules of [[stages]] in their order; a user's `own` are strong. Errors as in `vocabulary`."""
    if not isinstance(rules, list):
        raise ConfigError(
            f"{where}: [stages] is one table, but rules are a list: write [[stages]] for each"
        )
    return [
        made
        for i, rule in enumerate(rules, 1)
        for made in _rule(f"{where}: [[stages]] number {i}", rule, own)
    ]


def metrics(where: str, table: object, known: Collection[str] = ()) -> tuple[Metric, ...]:
    """The metrics of [metrics], whose indicators must be among the `known` if there are any. Errors as in `vocabulary`."""
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"{where}: metrics = {table!r} is a value, but [metrics] is a table of metric names and their indicators"
        )
    return tuple(
        made
        for name, said in table.items()
        for one in _several(f"{where}: [metrics] {name!r}", said, "indicator")
        for made in _metric(f"{where}: [metrics] {name!r}", name, one, known)
    )


def _flat(table: Table, above: str = "") -> dict[str, Any]:
    """Attribute names without quotes are read by TOML as tables within tables: here they are names again."""
    out: dict[str, Any] = {}
    for key, meaning in table.items():
        deeper = isinstance(meaning, dict) and not isinstance(meaning.get("field"), str)
        out.update(_flat(meaning, f"{above}{key}.") if deeper else {f"{above}{key}": meaning})
    return out


def _several(where: str, said: object, what: str) -> Iterator[Table]:
    """One meaning or a list of them, each a table; a text alone is its `what`."""
    many = said if isinstance(said, list) else [said]
    if not many:
        raise ConfigError(f"{where} names no {what}")
    for one in many:
        table = {what: one} if isinstance(one, str) else one
        if not isinstance(table, Mapping) or what not in table:
            article = "an" if what == "indicator" else "a"
            raise ConfigError(
                f'{where} = {one!r}: write the name of {article} {what}, or {{ {what} = "...", unit = "..." }}'
            )
        yield table


def _field(where: str, key: str, said: Table, rank: int) -> Field:
    _check(where, said, _FIELD_KEYS)
    column, reader = _column(where, said)
    return Field(
        column,
        key,
        reader,
        rank + said.get("rank", 0),
        _steps(said.get("path", "")),
        tuple(map(_steps, said.get("plus", ()))),
        said.get("served", False),
        said.get("beside", ""),
    )


def _column(where: str, said: Table) -> tuple[str, str]:
    """Canonical column and reader of a field."""
    name, unit = said["field"], said.get("unit")
    if name in TIMES:
        if unit not in UNITS:
            units = "s, ms, text (1.5s, as Rust prints it) or time (an ISO time, taken from the span's start on)"
            raise ConfigError(
                f"{where}: {name} is a time, so it needs a unit: {units}, not {unit!r}"
            )
        return TIMES[name], UNITS[unit]
    _known(where, "field", name, (*FIELDS, *TIMES))
    if unit is not None:
        raise ConfigError(f"{where}: {name} has no unit; {', '.join(TIMES)} have")
    column, reader = FIELDS[name]
    return column, _known(where, "reader", said.get("reader", reader), READERS)


def _rule(where: str, said: object, own: bool) -> list[Mark | SpanName]:
    """A mark, or the names that one rule selects: one for each scope."""
    if not isinstance(said, Mapping):
        raise ConfigError(
            f"{where} = {said!r} is not a table: write [[stages]] and stage = ... below it"
        )
    _check(where, said, _STAGE_KEYS)
    stage = _known(where, "stage", said.get("stage", ""), (*_STAGES, *_ROLES))
    role, stage = _ROLES.get(stage, ("phase" if said.get("phase") else "plain", stage))
    for key in ("attribute", "name", "scope"):
        if not said.get(key, "-"):
            raise ConfigError(f"{where}: {key} = '' is not a text that selects spans")
    pattern, strong = said.get("pattern", ""), said.get("strong", own)
    if "attribute" in said and "name" not in said:
        values = frozenset(said.get("values", [said["value"]] if "value" in said else []))
        rest = {key: said[key] for key in ("weak", "beside", "client") if key in said}
        return [
            Mark(said["attribute"], role, stage, values, strong=strong, pattern=pattern, **rest)
        ]
    if "attribute" in said or ("name" in said) == ("pattern" in said):
        raise ConfigError(
            f"{where}: it selects no spans: add attribute = ... (and value = ...) or name = ... (and scope = ...)"
        )
    if "name" in said:
        # A star stands for anything; nothing else of the name is a pattern.
        pattern = ".*".join(re.escape(part) for part in said["name"].split("*"))
    scopes = said.get("scopes", [said.get("scope", "")])
    return [SpanName(pattern, role, stage, scope, strong=strong) for scope in scopes]


def _metric(where: str, name: str, said: Table, known: Collection[str]) -> list[Metric]:
    """The metric that an indicator is of: one for each value of its labels."""
    _check(where, said, _METRIC_KEYS)
    if known:
        _known(where, "indicator", said["indicator"], known)
    unit = _known(where, "unit", said.get("unit", "s"), SCALES)
    rest = {key: said[key] for key in ("scope", "sum_as", "adds") if key in said}
    rest["labels"] = tuple(said.get("labels", ()))
    return [
        Metric(name, said["indicator"], SCALES[unit], points, **rest)
        for points in _points(where, said.get("where", {}))
    ]


def _points(where: str, labels: object) -> list[tuple[tuple[str, str], ...]]:
    """Which labels points need: each choice of one value per label."""
    pairs = sorted(labels.items()) if isinstance(labels, Mapping) else [("", labels)]
    choices: list[list[tuple[str, Any]]] = [
        [(key, one) for one in (value if isinstance(value, list) else [value])]
        for key, value in pairs
    ]
    if not all(key and isinstance(one, str) for choice in choices for key, one in choice):
        raise ConfigError(
            f'{where}: where = {labels!r} is not a table of labels and their values, such as {{ state = "active" }}'
        )
    return list(itertools.product(*choices))


def _event(where: str, said: Table) -> EventField:
    _check(where, said, _EVENT_KEYS, ("event", "attribute", "field"))
    column, reader = _column(where, said)
    return EventField(column, said["event"], said["attribute"], reader, said.get("failed", False))


def _condition(where: str, said: Table) -> tuple[str, tuple[str, ...], object]:
    """What an attribute holds where an answer came out of a cache: a value, nothing (`absent`), or any but an empty one."""
    kinds = {"attribute": "text", "path": "text", "absent": "true or false", "value": ""}
    _check(where, said, kinds, ("attribute",))
    value = ... if said.get("absent") else said.get("value")
    return said["attribute"], _steps(said.get("path", "")), value


def _steps(path: str) -> tuple[str, ...]:
    return tuple(step for step in path.split(".") if step)


def _check(where: str, said: object, kinds: Mapping[str, str], needed: Iterable[str] = ()) -> None:
    """Raise an error for what is no table, for a key that is not among those of `kinds` or is missing, and for a value of another kind."""
    if not isinstance(said, Mapping):
        raise ConfigError(f"{where} = {said!r} is not a table; its keys are {', '.join(kinds)}")
    for key, value in said.items():
        kind = kinds[_known(where, "key", key, kinds)]
        right = not kind or type(value) is _KINDS[kind]
        if right and kind == "list of texts":
            right = all(isinstance(one, str) for one in value)
        if not right:
            several = f" ({key}s = [...] for several)" if key in ("value", "scope") else ""
            raise ConfigError(f"{where}: {key} = {value!r} is not a {kind}{several}")
    for key in needed:
        if key not in said:
            raise ConfigError(f"{where}: {key} is missing")


def _known(where: str, what: str, word: str, known: Collection[str]) -> str:
    """The word itself, if it is known."""
    if word in known:
        return word
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    hint = f": did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"
    raise ConfigError(f"{where}: unknown {what} {word!r}{hint}")
