"""Rows of spans or model calls under names of anybody's, as the last way, where no form and no load test is known.

A row counts if it says when it began, when it ended or how long it took, and which trace, model or tokens it is of, or which model's API was asked. Every one
of the first rows must, or be of the same log: a row with the same times that names no model. What a column is follows from the words of its name
(`row_columns`), a missing unit from what else the rows say (`row_units`), a begin or an end from how they lie (`row_times`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from overrun.collector.sources import envelope, model_apis
from overrun.collector.sources.account import Account
from overrun.collector.sources.exports import calls, otlp, row_times, row_units
from overrun.collector.sources.exports.row_columns import (
    COUNTS,
    KINDS,
    PARTS,
    Told,
    fields,
    known_values,
    number,
    plain,
)

Found = calls.Found
# What is asked of a model, by a name, an address or the model's own name, where no count of tokens says it.
_ASKED = (
    ("EMBEDDING", "embed"),
    ("RERANKER", "rerank"),
    ("GUARDRAIL", "moderation"),
    *(("LLM", word) for word in ("chat", "completion", "generate", "responses", "messages")),
)
_FAILED = re.compile(r"(?i)err|fail|exception|timeout|cancel|abort")
_ERROR = 50  # the level of an error as Pino and Bunyan count, of a critical one as Python does
_LISTS = (
    *("data", "result", "results", "content", "items", "records", "rows", "spans", "traces"),
    *("runs", "requests", "calls", "logs", "events", "observations", "generations", "hits"),
)
# Of rows that are lists: what a cell's name, the columns and the rows are called.
_CELL_NAMES, _COLUMNS, _VALUES = (
    ("field", "name", "key"),
    ("columns", "meta", "cols"),
    ("rows", "data", "values"),
)
_LOOKED_AT = 20  # rows by which a file is known
_CONCLUDED_FROM = 500  # rows by which units and ends are
_DEEPEST_LIST = 6  # objects around the rows in an API's answer
_LONGEST_FIGURE = 40  # characters
_FIGURE = re.compile(r"-?\d[\d.,]*(?:[eE][-+]?\d{1,3})?\s?[%A-Za-zµ/]{0,12}")
_CALLED = frozenset({"trace", "model", "input", "output"})  # what only spans and calls have
_MOMENTS = frozenset({"start", "end", "time"})
_EQUAL = 0.02  # of a whole and the sum of its parts


def documents(
    value: Any, notes: list[str] | None = None, account: Account | None = None
) -> list[dict[str, Any]] | None:
    """The request of such rows, listed or anywhere inside of an answer; None of anything else. What is concluded about them is added to `notes`, and what
    their columns were to `account`."""
    notes = [] if notes is None else notes
    account = account or Account()
    found = _of_listed(listed(value), notes, account)
    if found is not None:
        return found
    for one in envelope.lists(envelope.plain(value)):
        concluded: list[str] = []
        if len(one.rows) > 1 and (found := _of_listed(one.rows, concluded, account)) is not None:
            notes += [*concluded, f"the rows stand at {one.path}, with the fields around them"]
            return found
    return None


def _of_listed(
    rows: list[dict[str, Any]], notes: list[str], account: Account
) -> list[dict[str, Any]] | None:
    rows = [envelope.plain(row) for row in rows]
    first = [fields(row) for row in rows[:_CONCLUDED_FROM]]
    moments = (
        {}
        if any(_MOMENTS & found.keys() for found in first)
        else row_times.undeclared(rows[:_CONCLUDED_FROM])
    )
    if moments:
        notes.append(
            f"moments stand in {', '.join(f'{name} (read as {field})' for field, name in moments.items())}"
        )
        rows = [row | {field: row.get(name) for field, name in moments.items()} for row in rows]
        first = [fields(row) for row in rows[:_CONCLUDED_FROM]]
    concluded = _concluded(first)
    read = [_read(found, concluded) for found in first]
    if None in read[:_LOOKED_AT] or not any(read):
        return None
    notes.extend(concluded.notes)
    read += [_read(fields(row), concluded) for row in rows[_CONCLUDED_FROM:]]
    told = [
        one | {"id": _own_id(at, one), "raw": known_values(row)}
        for at, (one, row) in enumerate(zip(read, rows, strict=True))
        if one
    ]
    _account_of(rows, first, told, account)
    if account.contradicted:
        notes.append(
            f"first tokens ({account.contradicted[0]}) left out: in no row do they lie between the begin and the end of the call"
        )
    _keep_apart(told)
    return otlp.request(span for one in told for span in _spans(one))


def _account_of(
    rows: list[dict[str, Any]],
    first: list[dict[str, Told]],
    told: list[dict[str, Any]],
    account: Account,
) -> None:
    """Write down which columns were read, which were not, and which was recognised and fits no row."""
    account.rows, account.used = len(rows), len(told)
    read = {one.name for found in first for one in found.values()}
    account.columns = sorted(read)
    named = dict.fromkeys(name for row in rows[:_LOOKED_AT] for name in row)
    account.unused = [
        name for name in named if not any(f"{one}.".startswith(f"{name}.") for one in read)
    ]
    name = next((found["first"].name for found in first if "first" in found), "")
    if name and all(one["first"] is None for one in told):
        account.contradicted = [name]


def _own_id(at: int, told: Mapping[str, Any]) -> str:
    """The id of a row; zeros alone are none."""
    own = str(told.get("id") or 0)
    return own if own.strip("0") else f"row {at}"


def _keep_apart(told: list[dict[str, Any]]) -> None:
    """Give rows that share what is no id of theirs their own: two of one id at other times, and several in one trace of which none is within another."""
    times: dict[tuple[str, str], tuple[int, int]] = {}
    alone: dict[str, list[dict[str, Any]]] = {}
    nested = set()
    for row in told:
        trace, when = str(row.get("trace") or ""), (row["start"], row["whole"])
        if times.setdefault((trace, row["id"]), when) != when:
            row["id"] = f"{row['id']} of {when}"
        if row.get("parent"):
            nested.add(trace)
        elif trace:
            alone.setdefault(trace, []).append(row)
    for trace, rows in alone.items():
        if len(rows) > 1 and trace not in nested:
            _part_trace(trace, rows)


def _part_trace(trace: str, rows: list[dict[str, Any]]) -> None:
    """Put rows of a trace, none of which names a parent, below the longest one where they are within it, else into traces of their own."""
    longest = max(rows, key=lambda row: int(row["whole"]))
    begin, end = longest["start"], longest["start"] + longest["whole"]
    for row in rows:
        if row is longest:
            continue
        if begin <= row["start"] and row["start"] + row["whole"] <= end:
            row["parent"] = longest["id"]
        else:
            row["trace"] = f"{trace} {row['id']}"


def event(found: Mapping[str, Told], at: int, service: str, scope: str) -> Found | None:
    """The span of an event that was written at a time (ns since 1970) when its call was over; None where it says no duration with its unit, nor a tool or
    a call of a model with its tokens or failure. One that names its prompt has that prompt's span (`prompt_of`) as parent."""
    written = {**found, "time": Told(at, "", "time")}
    told = _read(written, _Concluded(ends=True, calls=True, events=True))
    if not told or told["whole"] <= 0 or not {"took", "end"} & found.keys():
        return None
    is_tool = told["kinds"] == "TOOL" and "name" in found
    is_call = told["kinds"] == "LLM" and (told["is_failed"] or {"input", "output"} & found.keys())
    if not is_tool and not is_call:
        return None
    prompt = prompt_of(found, service)
    unique = f"{scope} {told.get('session')} {at} {told.get('name')} {told['whole']}"
    ids = {"id": unique, "trace": prompt or unique, "parent": prompt and f"of {prompt}"}
    _, _, span = _span(told | ids)
    return {"service.name": service or "events"}, scope or "events", span


def prompt_of(found: Mapping[str, Told], service: str) -> str:
    """The prompt that an event is of, "" where it names none."""
    told = found.get("trace")
    return f"{service} {told.value}" if told is not None and "prompt" in told.name.lower() else ""


def prompt_span(like: Found, prompt: str, begin: int, end: int, session: Any) -> Found:
    """The span of a prompt, around the spans of its events."""
    resource, scope, span = like
    own = {
        "spanId": otlp.hex_id(f"of {prompt}", 16),
        "parentSpanId": "",
        "name": PROMPT,
        "startTimeUnixNano": begin,
        "endTimeUnixNano": end,
        "attributes": otlp.attributes(
            {_KIND: "AGENT"} | ({"session.id": session} if session else {})
        ),
        "status": {"code": 0},
    }
    return resource, scope, span | own


def lacking(value: Any) -> str:
    """What rows lack that have a begin and a model or tokens; "" for anything else, such as one document: a summary has a date and a duration, too."""
    rows = listed(value)[:_LOOKED_AT]
    found = [fields(row) for row in rows]
    if rows == [value] and not {"start", "trace"} <= found[0].keys():
        return ""
    calls = [one for one in found if {"model", "input", "trace"} & one.keys() or _asked(one)]
    if not calls and len(found) > 1 and all(_is_point(row) for row in rows):
        return (
            "figures over time, as a dashboard exports a panel: percentiles of several minutes are none of all; ask where it has them from, "
            "`overrun report http://HOST:9090`"
        )
    if not calls or not all({"start", "time"} & one.keys() for one in found):
        return ""
    took, _ = _whole(calls[0])
    if took is None:
        return "rows of calls without an end or a duration: add a column `end` (a time) or `duration_ms`"
    name = _took_name(calls[0])
    return f"rows of calls whose column {name!r} has no unit: rename it {name}_ms or {name}_s, or add a column `end` (a time)"


def _is_point(row: Mapping[str, Any]) -> bool:
    """Whether a row is a time and figures, with a unit behind them or without."""
    first, *others = row.items() if row else [("", "")]
    figures = (str(told)[:_LONGEST_FIGURE] for _, told in others)
    return plain(first[0]) == "time" and bool(others) and all(map(_FIGURE.fullmatch, figures))


@dataclass(frozen=True, slots=True)
class _Concluded:
    """What the first rows say of all: the unit of durations without one, whether their time is an end, whether a row that names a model is a call of it,
    and what a reader has to know of it."""

    unit: str = ""
    ends: bool = False
    calls: bool = False
    events: bool = False  # each stands for itself: none is only another row of the same log
    notes: tuple[str, ...] = ()


def listed(value: Any) -> list[dict[str, Any]]:
    """The rows of a value: its own objects, or those of the list that an answer keeps them in; what Elasticsearch keeps a row in is taken off."""
    rows = _of_cells(value) or otlp.listed(value)
    if isinstance(value, dict):
        rows = _held(value, 0) or [value]
    return [row["_source"] if isinstance(row.get("_source"), dict) else row for row in rows]


def _held(value: dict[str, Any], depth: int) -> list[dict[str, Any]]:
    """The one list of rows in an answer, below a name that says so or below the only object in it; none where there are several."""
    if rows := _below_names(value):
        return rows
    for key in _LISTS:
        if rows := _of_cells(value.get(key)):
            return rows
    lists = [value[key] for key in _LISTS if otlp.listed(value.get(key))]
    if lists:
        return otlp.listed(lists[0]) if len(lists) == 1 else []
    inner = [one for key in _LISTS if isinstance(one := value.get(key), dict)] or [
        one for one in value.values() if isinstance(one, dict)
    ]
    return _held(inner[0], depth + 1) if len(inner) == 1 and depth < _DEEPEST_LIST else []


def _of_cells(value: Any) -> list[dict[str, Any]]:
    """Rows that are lists of cells, each with its column's name (AWS's answers: `field` and `value`); none of anything else."""
    if not isinstance(value, list) or not value or not all(isinstance(row, list) for row in value):
        return []
    named = next((name for name in _CELL_NAMES if _is_cell(value[0], name)), "")
    if not named:
        return []
    return [
        {str(one[named]): one["value"] for one in row if _is_cell([one], named)} for row in value
    ]


def _is_cell(cells: list[Any], named: str) -> bool:
    return bool(cells) and isinstance(cells[0], dict) and {named, "value"} <= cells[0].keys()


def _below_names(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows that are lists of values in the order of columns that stand beside them; none of anything else."""
    columns: list[Any] = next(
        (value[key] for key in _COLUMNS if isinstance(value.get(key), list)), []
    )
    named = [one.get("name") if isinstance(one, dict) else one for one in columns]
    names = [name for name in named if isinstance(name, str)]
    values: list[Any] = next(
        (value[key] for key in _VALUES if isinstance(value.get(key), list)), []
    )
    if not names or len(names) != len(columns):
        return []
    if not all(isinstance(row, list) and len(row) == len(names) for row in values):
        return []
    return [dict(zip(names, row, strict=True)) for row in values]


def _concluded(rows: list[dict[str, Told]]) -> _Concluded:
    """What must be concluded from the first rows, as far as these need it."""
    notes = []
    timed = [one for found in rows for one in [_timed(found)] if one is not None]
    unit, why = row_units.unit_of(timed)
    if unit:
        name = next(_took_name(found) for found in rows if _timed(found) is not None)
        notes.append(f"durations without a unit ({name}) are read in {unit}: {why}")
    single = [
        (moment, took)
        for found in rows
        if not any(row_times.moment_ns(found.get(field)) for field in ("start", "end"))
        and (moment := row_times.moment_ns(found.get("time")))
        and (took := took_ns(found, unit)) is not None
    ]
    logged = any(row_times.is_logged(found) for found in rows)
    ends = bool(single) and (logged or row_times.ends(single))
    if ends:
        notes.append("the time of a row is read as its end")
    kinds = [_kind(found) for found in rows if "model" in found]
    return _Concluded(unit, ends, 2 * kinds.count("LLM") > len(kinds), notes=tuple(notes))


def _timed(found: Mapping[str, Told]) -> row_units.Timed | None:
    """A row whose whole has no unit."""
    whole, unit = _whole(found)
    if whole is None or unit:
        return None
    begin, written = (row_times.moment_ns(found.get(field)) for field in ("start", "time"))
    return row_units.Timed(
        whole,
        number(found["output"].value) if "output" in found else None,
        (written - begin) / 1e9 if begin and written > begin else None,
        not is_failed(found) and _kind(found) == "LLM",  # embeddings take as long as they like
    )


def _asked(found: Mapping[str, Told]) -> str:
    """What was asked of a model's API, by the address that was posted to; "" for none."""
    method = found.get("method")
    if "asked" not in found or (method is not None and str(method.value).upper() != "POST"):
        return ""
    return model_apis.asked_of(str(found["asked"].value))


def _whole(found: Mapping[str, Told]) -> tuple[float | None, str]:
    """How long a row's call took and the unit, "" where neither its name nor that of the begin says it. `response_time` and `request_time` are durations
    if they are no moments; without any whole its parts are summed."""
    told = found.get("took")
    for moment in ("end", "start"):
        if told is None and moment in found and not row_times.moment_ns(found[moment]):
            told = found[moment]
    if told is not None:
        start = found.get("start")
        return number(told.value), told.unit or (start.unit if start is not None else "")
    parts = [found[part] for part in PARTS if part in found]
    if len(parts) < 2 or len({part.unit for part in parts}) > 1:
        return None, ""
    return sum(number(part.value) or 0.0 for part in parts), parts[0].unit


def _took_name(found: Mapping[str, Told]) -> str:
    """The column that says how long a call took."""
    named = (found[field].name for field in ("took", "end", "start", *PARTS) if field in found)
    return next(named, "")


def took_ns(found: Mapping[str, Told], unit: str) -> int | None:
    """How long a row's call took: by its own unit, else by that of all rows. The whole holds its parts; a queue may stand beside it."""
    whole, own = _whole(found)
    if whole is None or not 0.0 <= whole < 1e18 or not (own or unit):
        return None
    took = row_units.scaled(whole, own or unit)
    parts = _parts(found, own or unit)
    inside = sum(ns for part, ns in parts.items() if part != "queue")
    if parts.get("queue") and inside and abs(took - inside) <= _EQUAL * took:
        return took + parts["queue"]
    return max(took, sum(parts.values()))


def _parts(found: Mapping[str, Told], unit: str) -> dict[str, int]:
    """What the parts of a call took, in ns; without a unit of its own a part has that of the whole."""
    out = {}
    for part in PARTS:
        told = found.get(part)
        took = number(told.value) if told is not None else None
        if told is not None and took is not None and 0.0 <= took < 1e18 and (told.unit or unit):
            out[part] = row_units.scaled(took, told.unit or unit)
    return out


def _read(found: Mapping[str, Told], concluded: _Concluded) -> dict[str, Any] | None:
    """The fields of a row, times in ns; None if it is none of a span or call, empty if it is another one of the same log."""
    begin = row_times.moment_ns(found.get("start"))
    time = row_times.moment_ns(found.get("time"))
    end = row_times.moment_ns(found.get("end"))
    if not end and begin and "took" not in found and time > begin:
        end = time  # when it was written down
    took = took_ns(found, concluded.unit)
    if took is None and begin and end:
        took = end - begin
    start = begin or (time - (took or 0) if concluded.ends and time else time)
    if not start and end and took is not None:
        start = end - took
    if start <= 0 or (not end and took is None):
        return {} if row_times.is_logged(found) else None  # a logger writes of other things, too
    whole = end - start if end and begin else (took or 0)
    if whole < 0:
        return None
    asked, kind = _asked(found), _kind(found)
    if not _CALLED & found.keys() and not asked and not concluded.events and kind != "LLM":
        return {}
    _, own = _whole(found)
    unit = own or concluded.unit
    parts = _parts(found, unit)
    return {field: told.value for field, told in found.items()} | {
        "start": start,
        "whole": whole,
        "first": _first(found.get("first"), start, whole),
        "api": asked,
        "kinds": "LLM" if kind == "CHAIN" and concluded.calls and "model" in found else kind,
        "parts": parts if sum(parts.values()) <= whole * (1 + _EQUAL) else {},
        "behind": _behind(found.get("behind"), unit, whole),
        "is_failed": is_failed(found),
    }


def _behind(told: Told | None, unit: str, whole: int) -> int | None:
    """What the server behind a gateway took of the whole."""
    took = number(told.value) if told is not None else None
    if told is None or took is None or not 0.0 < took < 1e18 or not (told.unit or unit):
        return None
    behind = row_units.scaled(took, told.unit or unit)
    return behind if behind < whole else None


def _first(found: Told | None, start: int, whole: int) -> int | None:
    """When the first token came after the start: a moment in any form, or a duration whose unit is said or the only one that fits."""
    if found is None:
        return None
    if (moment := row_times.moment_ns(found)) and 0 <= moment - start <= whole:
        return moment - start
    told = number(found.value)
    if told is None or not 0.0 <= told < 1e18:
        return None
    if found.unit:
        after = row_units.scaled(told, found.unit)
        return after if after <= whole else None
    fits = [round(told * scale) for scale in (10**9, 10**6) if told * scale <= whole]
    return fits[0] if told > 0.0 and fits else None


def _kind(found: Mapping[str, Told]) -> str:
    """What a row is, in OpenInference's words; CHAIN where nothing says it."""
    said = str(found["kind"].value).lower() if "kind" in found else ""
    for kind, words in KINDS:
        if said in words:
            return kind
    api = _asked(found)
    if "model" not in found and not api and not found.keys() & set(PARTS):
        return "CHAIN"
    named = (str(found[field].value) for field in ("name", "asked", "model") if field in found)
    asked = " ".join(named).lower()
    kind = next((kind for kind, word in _ASKED if word in asked), "LLM" if api else "CHAIN")
    return "LLM" if kind == "CHAIN" and dict(COUNTS).keys() & found.keys() else kind


def _count(told: Any) -> int | None:
    counted = number(told)
    return round(counted) if counted is not None and 0.0 <= counted < 2**63 else None


def _spans(told: Mapping[str, Any]) -> Iterable[Found]:
    """The spans of a row: its own, and where a gateway says what the server behind it took, the server's call inside of it."""
    found = _span(told)
    if told["behind"] is None:
        return [found]
    resource, scope, own = found
    attributes = {one: value for one, value in _attributes(told).items() if one != _KIND}
    operation = "embeddings" if "embed" in str(told.get("asked")).lower() else "chat"
    attributes = {"gen_ai.operation.name": operation} | attributes
    before = told["whole"] - told["behind"]
    call = own | {
        "parentSpanId": "",
        "name": attributes["gen_ai.operation.name"],
        "kind": otlp.KINDS["client"],
        "startTimeUnixNano": told["start"] + before,
        "attributes": otlp.attributes(
            {one: value for one, value in attributes.items() if value not in (None, "")}
        ),
    }
    route = model_apis.path_of(str(told["asked"])) if told.get("asked") else _name(told)
    around = {"http.route": route} | _http(told)
    return calls.with_gateway(
        (resource, scope, call),
        {one: value for one, value in around.items() if value not in (None, "")},
        told["start"],
        calls.Waits(before / 1e6, 0.0, told["whole"] / 1e6),
    )


_KIND = "openinference.span.kind"
PROMPT = "prompt"  # the name of a prompt's span


def _http(told: Mapping[str, Any]) -> dict[str, Any]:
    """The method and status of what was asked over HTTP."""
    code = number(told.get("status"))
    return {
        "http.request.method": "POST" if told["api"] else None,
        "http.response.status_code": int(code) if code and 100 <= code < 600 else None,
    }


def _attributes(told: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says, under the names of the conventions."""
    kind, first, parts = told["kinds"], told["first"], told["parts"]
    raw = told.get("raw") or {}
    if kind == "CHAIN":
        own = {} if raw else {_KIND: kind}
        return raw | own | {"session.id": told.get("session")}
    attributes = {
        _KIND: kind,
        "gen_ai.response.model": told.get("model"),
        "gen_ai.provider.name": str(told.get("provider") or "").lower(),
        "gen_ai.usage.input_tokens": _count(told.get("input")),
        "gen_ai.usage.output_tokens": _count(told.get("output")),
        "gen_ai.usage.cache_read.input_tokens": _count(told.get("cached")),
        "gen_ai.usage.reasoning.output_tokens": _count(told.get("reasoning")),
        "gen_ai.usage.cache_creation.input_tokens": _count(told.get("written")),
        "gen_ai.usage.total_tokens": _count(told.get("total")),
        "gen_ai.response.time_to_first_chunk": first / 1e9 if first is not None else None,
        "session.id": told.get("session"),
        "tenant.id": told.get("tenant"),
    }
    if told["api"]:
        path = model_apis.path_of(str(told["asked"]))
        attributes |= {"gen_ai.operation.name": told["api"], "http.route": path} | _http(told)
    if kind == "LLM" and parts:
        waited = parts.get("queue", 0) + parts.get("load", 0)
        del attributes[_KIND]  # an engine's own account, as its spans have it
        attributes |= {
            "gen_ai.latency.time_in_queue": waited / 1e9,
            "gen_ai.latency.e2e": told["whole"] / 1e9,
        }
        if "prefill" in parts:
            attributes |= {
                "gen_ai.latency.time_in_model_prefill": parts["prefill"] / 1e9,
                "gen_ai.latency.time_to_first_token": (waited + parts["prefill"]) / 1e9,
            }
        if "decode" in parts:
            attributes["gen_ai.latency.time_in_model_decode"] = parts["decode"] / 1e9
    return raw | {key: one for key, one in attributes.items() if one not in (None, "")}


def _span(told: Mapping[str, Any]) -> Found:
    own = str(told["id"])
    trace = str(told.get("trace") or f"trace of {own}")
    parent = told.get("parent")
    return (
        {"service.name": told.get("service") or "rows"},
        "rows",
        {
            "traceId": otlp.hex_id(trace, 32),
            "spanId": otlp.hex_id(own, 16),
            "parentSpanId": otlp.hex_id(parent, 16) if parent and str(parent) != own else "",
            "name": _name(told),
            "kind": otlp.KINDS["internal"],
            "startTimeUnixNano": told["start"],
            "endTimeUnixNano": told["start"] + told["whole"],
            "attributes": otlp.attributes(
                {key: one for key, one in _attributes(told).items() if one not in (None, "")}
            ),
            "status": {"code": otlp.ERROR if told["is_failed"] else 0},
        },
    )


def _name(told: Mapping[str, Any]) -> str:
    """A row's name; of an address as its name (Weave's) the last part, without its version."""
    name = str(told.get("name") or told["kinds"].lower())
    return name.rpartition("/")[2].partition(":")[0] if "://" in name else name


def is_failed(found: Mapping[str, Told]) -> bool:
    """Whether a row's call failed, by its status, success, level or error."""
    told = {
        field: found[field].value
        for field in ("status", "level", "error", "success")
        if field in found
    }
    status, error = told.get("status"), told.get("error")
    if str(told.get("success")).lower() in ("false", "0", "0.0"):
        return True
    code = number(status)
    if code is not None and code >= 400:
        return True
    if isinstance(status, str) and code is None and _FAILED.search(status[:200]):
        return True
    level = told.get("level")
    if code is None and (_FAILED.search(str(level or "")[:40]) or (number(level) or 0) >= _ERROR):
        return True
    return error is True or (
        isinstance(error, str) and error.lower() not in ("", "false", "none", "null", "0")
    )
