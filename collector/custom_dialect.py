"""What do the operator's own attributes mean? The tables [attributes] and [[stages]] of the settings file, as one more vocabulary.

    [attributes]
    "acme.tokens.in" = "input_tokens"
    "acme.first_token_ms" = { field = "ttft", unit = "ms" }
    "acme.usage" = [{ field = "output_tokens", path = "usage.out" }, { field = "cached_tokens", path = "usage.cached" }]

    [[stages]]
    stage = "guardrail"
    attribute = "acme.step"
    value = "safety"

They come before every built-in vocabulary; a mistake in them stops the start and names what was wrong and the nearest known word.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from overrun.collector.dialects import Dialect, Field, Mark, Metric, SpanName
from overrun.collector.errors import ConfigError

# Field of the settings file -> canonical column and reader. Times need a unit instead.
FIELDS = {
    **{
        name: (name, "int")
        for name in (
            "input_tokens",
            "output_tokens",
            "cached_tokens",
            "cache_write_tokens",
            "reasoning_tokens",
            "max_tokens",
            "turn",
            "attempts",
        )
    },
    **{
        name: (name, "text")
        for name in (
            "operation",
            "model",
            "provider",
            "response_id",
            "error_type",
            "route",
            "session",
            "tenant",
            "workload",
            "prefix_hash",
            "depends_on",
        )
    },
    "user": ("user_hash", "text"),
    "finish_reason": ("finish_reason", "first"),
    "http_status": ("http_status", "status"),
    "temperature": ("temperature", "float"),
    "streaming": ("streaming", "bool"),
}
TIMES = {
    "ttft": "ttft_ns",
    "queue": "queue_ns",
    "prefill": "prefill_ns",
    "decode": "decode_ns",
    "engine_e2e": "engine_e2e_ns",
}
UNITS = {"s": "seconds", "ms": "millis", "text": "duration", "time": "moment"}
# What a rule may make of a span besides a stage: a model call, time that only counts where no child covers it, or nothing at all.
_ROLES = {
    "model_call": ("llm", "generation"),
    "container": ("container", "other"),
    "ignore": ("folded", "other"),
}
_STAGES = (
    "network",
    "gateway",
    "retrieval",
    "prompt",
    "guardrail",
    "queue",
    "kv_transfer",
    "prefill",
    "decode",
    "tool",
    "post",
    "wait_user",
    "other",
)
_FIRST = -100  # rank of the operator's fields: before everybody's


def own_dialect(
    attributes: object, stages: object, path: Path | None = None, metrics: tuple[Metric, ...] = ()
) -> Dialect | None:
    """The vocabulary of the settings file's [attributes], [[stages]] and [metrics] (`metrics`); None if it has none of them.

    Raises:
        ConfigError: a field, unit or stage that nobody knows (names the nearest known one), or a value of the wrong kind.
    """
    if not isinstance(attributes, Mapping):
        raise ConfigError(
            f"{path}: attributes = {attributes!r} is a value, but [attributes] is a table of attribute names and their fields"
        )
    if not isinstance(stages, Sequence) or isinstance(stages, str):
        raise ConfigError(
            f"{path}: [stages] is one table, but rules are a list: write [[stages]] for each"
        )
    fields = tuple(
        f
        for key, meaning in _flat(attributes).items()
        for f in _fields(f"{path}: [attributes] {key!r}", key, meaning)
    )
    rules = [_rule(f"{path}: [[stages]] number {i}", rule) for i, rule in enumerate(stages, 1)]
    marks = tuple(rule for rule in rules if isinstance(rule, Mark))
    names = tuple(rule for rule in rules if isinstance(rule, SpanName))
    if not fields and not rules and not metrics:
        return None
    keys = tuple(dict.fromkeys([*(f.key for f in fields), *(m.key for m in marks)]))
    return Dialect(
        name="own",
        precedence=95,
        prefixes=keys,
        fields=fields,
        marks=marks,
        names=names,
        metrics=metrics,
    )


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Attribute names without quotes are read by TOML as tables within tables: here they are names again."""
    out: dict[str, Any] = {}
    for key, meaning in table.items():
        deeper = isinstance(meaning, dict) and not isinstance(meaning.get("field"), str)
        out.update(_flat(meaning, f"{above}{key}.") if deeper else {f"{above}{key}": meaning})
    return out


def _fields(where: str, key: str, meaning: object) -> list[Field]:
    many = meaning if isinstance(meaning, list) else [meaning]
    if not many:
        raise ConfigError(f"{where} names no field")
    return [_field(where, key, one, i) for i, one in enumerate(many)]


def _field(where: str, key: str, meaning: object, rank: int) -> Field:
    said = {"field": meaning} if isinstance(meaning, str) else meaning
    if not isinstance(said, Mapping) or "field" not in said:
        raise ConfigError(
            f'{where} = {meaning!r}: write the name of a field, or {{ field = "...", unit = "...", path = "..." }}'
        )
    _only(where, said, ("field", "unit", "path"))
    name, unit = str(said["field"]), said.get("unit")
    path = tuple(step for step in str(said.get("path", "")).split(".") if step)
    if name in TIMES:
        if unit not in UNITS:
            units = "s, ms, text (1.5s, as Rust prints it) or time (an ISO time, taken from the span's start on)"
            raise ConfigError(
                f"{where}: {name} is a time, so it needs a unit: {units}, not {unit!r}"
            )
        return Field(TIMES[name], key, UNITS[str(unit)], _FIRST + rank, path)
    if name not in FIELDS:
        raise ConfigError(f"{where}: unknown field {name!r}{_nearest(name, [*FIELDS, *TIMES])}")
    if unit is not None:
        raise ConfigError(f"{where}: {name} has no unit; {', '.join(TIMES)} have")
    column, reader = FIELDS[name]
    return Field(column, key, reader, _FIRST + rank, path)


def _rule(where: str, said: object) -> Mark | SpanName:
    if not isinstance(said, Mapping):
        raise ConfigError(
            f"{where} = {said!r} is not a table: write [[stages]] and stage = ... below it"
        )
    _only(where, said, ("stage", "attribute", "value", "values", "name", "scope"))
    stage = said.get("stage")
    if stage not in (*_STAGES, *_ROLES):
        raise ConfigError(
            f"{where}: unknown stage {stage!r}{_nearest(str(stage), [*_STAGES, *_ROLES])}"
        )
    role, stage = _ROLES.get(stage, ("plain", stage))
    for key in ("attribute", "name", "scope"):
        if key in said and (not isinstance(said[key], str) or not said[key]):
            raise ConfigError(f"{where}: {key} = {said[key]!r} is not a text")
    if ("attribute" in said) == ("name" in said):
        raise ConfigError(
            f"{where}: it selects no spans: add attribute = ... (and value = ...) or name = ... (and scope = ...)"
        )
    if "name" in said:
        # A star stands for anything; nothing else of the name is a pattern.
        pattern = ".*".join(re.escape(part) for part in said["name"].split("*"))
        return SpanName(pattern, role, stage, said.get("scope", ""), strong=True)
    values = said.get("values", [said["value"]] if "value" in said else [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ConfigError(
            f"{where}: value = {said.get('value', values)!r} is not a text (values = [...] for several)"
        )
    return Mark(said["attribute"], role, stage, frozenset(values), strong=True)


def _only(where: str, said: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in said:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{_nearest(key, known)}")


def _nearest(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f": did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"
