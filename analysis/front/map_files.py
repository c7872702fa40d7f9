"""What is in this file, and which map reads it? A file in, a proposed map with three records and its doubts out; a map and a file in, what comes of them out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from overrun.analysis.words.finding import printable
from overrun.collector.config import Settings
from overrun.collector.errors import ImportFailed
from overrun.collector.sources import envelope, forms, importer
from overrun.collector.sources.account import Account
from overrun.collector.sources.exports import row_times
from overrun.collector.sources.exports.row_columns import Told, fields
from overrun.collector.sources.exports.row_units import SCALE_NS
from overrun.collector.sources.forms import framing

_SHOWN: Final = 3  # records
_LONGEST: Final = 80  # characters of a value or line
_LOOKED_AT: Final = 50  # rows
_MOST_UNUSED: Final = 20
# Fields of rows, and the map's column that each is; of two for one column the first.
_COLUMNS: Final = (
    *(("start", "start"), ("time", "start"), ("end", "end"), ("took", "duration_ms")),
    *(("id", "span_id"), ("trace", "trace_id"), ("parent", "parent_id"), ("name", "name")),
    *(("service", "service"), ("model", "model"), ("provider", "provider")),
    *(("input", "input_tokens"), ("output", "output_tokens"), ("cached", "cached_tokens")),
    *(("reasoning", "reasoning_tokens"), ("first", "first"), ("status", "status")),
    *(("session", "session"), ("tenant", "tenant")),
)
_CALLED: Final = frozenset({"model", "input_tokens", "output_tokens"})


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a proposed map: its SQL, and the column of the file that it reads."""

    sql: str
    source: str


def propose(path: Path, settings: Settings) -> str:
    """What a file was recognised as, and a map of it to begin with.

    Raises:
        ImportFailed: the file cannot be opened, or holds neither rows nor lines.
    """
    form, head = importer.form_of(path, importer.own_forms(settings, None))
    if form is not None:
        return _of_form(path, form)
    if objects := framing.head_objects(head):
        return _of_objects(path, objects)
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines:
        raise ImportFailed(f"{path} holds neither rows nor lines")
    return _of_lines(path, lines)


def check(path: Path, map_file: Path) -> str:
    """What a map makes of a file, in words with its first records.

    Raises:
        ImportFailed: it makes nothing that can be used; says why. ConfigError, BadPayload: the map cannot be read, or fails on this file.
    """
    account, form = Account(path.name), forms.of_map(map_file)
    shown: list[str] = []
    for document in importer.read_by(path, form, account):
        shown += list(_records(document)) if len(shown) < _SHOWN else []
    lines = [*account.lines(), *(f"  record: {one}" for one in shown[:_SHOWN])]
    said = "\n".join(printable(line, 600) for line in lines)
    if not account.used:
        raise ImportFailed(f"{said}\nnone of its rows is of use")
    return f"{said}\nimport it: overrun store import {path} --map {map_file} --db overrun.db"


def _records(document: Mapping[str, Any]) -> Iterator[str]:
    """The first spans or samples of a request, a line each."""
    for resource in document.get("resourceSpans", ()):
        for scope in resource["scopeSpans"]:
            for span in scope["spans"][:_SHOWN]:
                told = {
                    one["key"]: next(iter(one["value"].values()), None)
                    for one in span["attributes"]
                }
                start, took = (
                    span["startTimeUnixNano"],
                    span["endTimeUnixNano"] - span["startTimeUnixNano"],
                )
                failed = ", failed" if span["status"]["code"] == 2 else ""
                yield f"{span['name']} at {start / 1e9:.3f} s, {took / 1e6:,.3f} ms{failed}, {json.dumps(told)}"
    for resource in document.get("resourceMetrics", ()):
        for scope in resource["scopeMetrics"]:
            for metric in scope["metrics"][:_SHOWN]:
                point = metric["gauge"]["dataPoints"][0]
                yield f"{metric['name']} at {point['timeUnixNano'] / 1e9:.3f} s: {point['asDouble']}"


def _of_form(path: Path, form: forms.Form) -> str:
    if form.refuse:
        return f"-- # {printable(path.name)} is {form.title}: {form.refuse.replace('{file}', str(path))}"
    read = f"-- # It is read as it is: overrun store import {path} --db overrun.db."
    return "\n".join(
        [
            f"-- # {printable(path.name)} is {form.title}: {form.why}.",
            f"{read} This is the SELECT that reads it:" if form.sql else f"{read} Python reads it.",
            f"-- read = {json.dumps(form.read)}",
            *(f"-- {key} = true" for key in ("whole", "timed", "figures") if getattr(form, key)),
            form.sql,
        ]
    )


def _of_objects(path: Path, objects: Sequence[Any]) -> str:
    """A map of the list whose rows say most, by the words of their names."""
    listed = [envelope.Listed("$", [one for one in objects if isinstance(one, dict)])]
    if len(objects) == 1:
        listed += [one for one in envelope.lists(objects[0]) if " " not in one.path]
    best = max(listed, key=lambda one: len(fields(one.rows[0]).keys() & dict(_COLUMNS).keys()))
    row = best.rows[0]
    found = fields(row)
    for field, name in row_times.undeclared(best.rows[:_LOOKED_AT]).items():
        found.setdefault(field, Told(row[name], "", name))
    columns = _columns(found, row)
    source = "f"
    if best.path != "$":
        source = f"(select unnest(json_extract(row, {_quoted(best.path)})) as row from f)"
    used = {column.source for column in columns.values()}
    unused = [
        name
        for name in row
        if name not in used and not any(one.startswith(f"{name}.") for one in used)
    ]
    lines = [f"    {column.sql} as {_name(name)}," for name, column in columns.items()]
    return "\n".join(
        [
            f"-- # {printable(path.name)} is in no form that is known. Its fullest rows stand at {best.path}:",
            *(f"-- #   {line}" for line in _filled(best.rows, columns)),
            *(f"-- # doubt: {doubt}" for doubt in _doubts(found, columns)),
            f"-- # not used: {printable(', '.join(unused[:_MOST_UNUSED]) or 'nothing', 400)}",
            f"-- # Try it: overrun store map {path} --check my.sql",
            '-- read = "objects"',
            "select",
            *lines[:-1],
            lines[-1].rstrip(",") if lines else '    now() as "start"',
            f"from {source}",
        ]
    )


def _columns(found: Mapping[str, Told], row: Mapping[str, Any]) -> dict[str, _Column]:
    """The columns of a map, by the fields that the words of a row's names say."""
    out: dict[str, _Column] = {}
    for field, column in _COLUMNS:
        if field not in found or column in out:
            continue
        told = found[field]
        sql = _accessor(row, told.name, "row")
        if field == "took":
            factor = SCALE_NS.get(_unit(told), 10**6) / 1e6
            sql = f"{factor:g} * ({sql})::double"
        out[column] = _Column(sql, told.name)
    status = out.get("status")
    if "error" in found:
        name = found["error"].name
        sql = f"nullif(lower({_accessor(row, name, 'row')}), 'false') is not null"
        out["error"] = _Column(sql, name)
    elif status is not None:
        out["error"] = _Column(
            f"coalesce(try_cast({status.sql} as int) >= 400, false)", status.source
        )
    if out.keys() & _CALLED:
        out["operation"] = _Column("'chat'", "")
    holder = next(
        (
            name
            for name in ("attributes", "tags", "Attributes", "metadata")
            if isinstance(row.get(name), dict | list)
        ),
        "",
    )
    if holder:
        out["attributes"] = _Column(f"row->{_quoted('$.' + _key(holder))}", holder)
    return out


def _unit(told: Told) -> str:
    return {"m": "ms", "s": "s", "u": "us", "n": "ns"}.get(
        told.unit[:1] if not told.unit.startswith("mic") else "u", "ms"
    )


def _doubts(found: Mapping[str, Told], columns: Mapping[str, _Column]) -> Iterator[str]:
    """What a person has to confirm of a proposed map."""
    if "start" not in columns:
        yield 'no column is known to be the begin of a row: name one as "start"'
    if not columns.keys() & {"end", "duration_ms"}:
        yield 'no column is known to be the end or the duration of a row: name one as "end" or duration_ms'
    if "took" in found and not found["took"].unit:
        yield f"the unit of {found['took'].name} is not known and is taken to be ms"
    if "start" not in found and "time" in found:
        yield f"{found['time'].name} is taken to be the begin; if it is written at the end, the start is that less the duration"
    if "span_id" not in columns:
        yield "no column is an id: rows are numbered"
    if "trace_id" in columns and "parent_id" not in columns:
        yield "rows of one trace name no parent: each stands alone"
    if columns.keys() & _CALLED:
        yield "every row is taken to be an answer of a chat model: make operation 'embeddings' or nothing where it is none"
    else:
        yield "no column names a model or counts tokens: add operation, model and tokens, or no row is a call"


def _filled(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, _Column]) -> Iterator[str]:
    """The first records, each column with the value that it reads."""
    for row in rows[:_SHOWN]:
        known = dict(row) | {told.name: told.value for told in fields(row).values()}
        told = (
            f"{name}={printable(str(known.get(column.source, '')), _LONGEST)}"
            for name, column in columns.items()
            if column.source in known
        )
        yield ", ".join(told)


def _accessor(row: Mapping[str, Any], name: str, source: str) -> str:
    """The SQL of what stands under a name with dots in a row."""
    for key, value in row.items():
        if key == name:
            return f"{source}->>{_quoted('$.' + _key(key))}"
        if not name.startswith(f"{key}."):
            continue
        inner = value
        step = f"({source}->{_quoted('$.' + _key(key))})"
        if isinstance(value, str):
            inner = json.loads(value)
            step = f"({source}->>{_quoted('$.' + _key(key))})::json"
        return _accessor(inner, name[len(key) + 1 :], step)
    return "null"


def _key(key: str) -> str:
    return (
        key
        if re.fullmatch(r"[A-Za-z_]\w*", key)
        else '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(column: str) -> str:
    return f'"{column}"' if column in ("start", "end") else column


def _of_lines(path: Path, lines: Sequence[str]) -> str:
    """A map of lines to fill in, with the first of them."""
    return "\n".join(
        [
            f"-- # {printable(path.name)} is in no form that is known, and its lines hold no rows. The first are:",
            *(f"-- #   {printable(line, 200)}" for line in lines[:_SHOWN]),
            "-- # doubt: each pattern below is to be filled in; at_ns is when a line was written, which is mostly the end of a call",
            f"-- # Try it: overrun store map {path} --check my.sql",
            '-- read = "lines"',
            "-- timed = true",
            "with parts as (",
            r"    select at_ns, regexp_extract(line, 'POST (/\S+).* (\d{3}) .*?([\d.]+) ?ms', ['path', 'status', 'ms']) as p from f",
            ")",
            "select",
            '    at_ns - round(p.ms::double * 1000000)::bigint as "start", at_ns as "end", \'chat\' as operation, p.path as route,',
            "    p.status as status, p.status::int >= 400 as error",
            "from parts where p.path <> ''",
        ]
    )
