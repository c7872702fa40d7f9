"""How does a wrong answer become a case? A folder with the telemetry that it was about, without names and texts, the command, and what was reported.

The folder fits `tests/corpus`. Both the telemetry and its copy are asked, so that it is known whether the copy shows the same.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import zstandard

from overrun.analysis.front import commands
from overrun.analysis.front import question_table as table
from overrun.analysis.front.asked import Asked, Source
from overrun.analysis.front.file_commands import stored
from overrun.analysis.front.question_table import Texts
from overrun.analysis.front.report import Report
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.finding import say_count
from overrun.collector.errors import ImportFailed
from overrun.collector.sources.anonymise import hidden_lines
from overrun.collector.sources.importer import find_files, read_bodies
from overrun.collector.sources.stored_spans import as_otlp

# What a case of the corpus may weigh; a larger one is written and said to be too large.
MOST_BYTES: Final = 400_000
# What of a report is compared and written down as reported.
_REPORTED: Final = (
    "verdict.status",
    "verdict.metric",
    "verdict.stage",
    "verdict.cause",
    "window.requests",
    "window.llm_calls",
)
_INPUT: Final = "input.jsonl.zst"


def pack(asked: Asked[Report], out: Path, *, trace: str | None) -> str:
    """Write the folder `out` from files, or from the spans of a window or of one `trace` of a database or server; returns what was written in words.

    Raises:
        AnalysisError, CollectorError: nothing to pack, or `out` is there already.
    """
    if out.exists():
        raise AnalysisError(f"{out} is there already: name a new folder")
    files = asked.source.files
    bodies = list(_of_files(files) if files else _of_spans(asked, trace))
    if not bodies:
        raise AnalysisError("there is no span and no metric to pack: widen the window")
    out.mkdir(parents=True)
    packed = zstandard.ZstdCompressor(level=19).compress(b"\n".join(hidden_lines(bodies)))
    (out / _INPUT).write_bytes(packed)
    slo = asked.texts.get("slo")
    with stored(Source(asked.source.settings, files=[out / _INPUT])) as (own, _):
        copied = _reported(replace(asked, source=own, texts={"slo": slo}))
    said = _reported(asked) if trace is None else copied
    (out / "case.toml").write_text(_case(said, slo), encoding="utf-8")
    changed = [name for name in said if said[name] != copied.get(name)]
    return _told(out, len(packed), said, copied, changed)


def _of_files(files: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    for path in find_files(files):
        try:
            yield from read_bodies(path)
        except ImportFailed:
            if path in files:
                raise


def _of_spans(asked: Asked[Report], trace: str | None) -> Iterator[tuple[str, bytes]]:
    """The stored spans as OTLP: what they had as attributes, and what was made columns of them."""
    window = {name: asked.texts.get(name) for name in ("since", "from", "to")}
    if trace is not None:
        one = Asked.read(table.TRACE, {"trace_id": trace}, asked.source)
        trace, window = str(json.loads(commands.ask(one))["trace_id"]), {}
    stream = io.BytesIO()
    spans = {**window, "kind": "spans", "format": "jsonl"}
    commands.export(Asked.read(table.EXPORT, spans, asked.source), stream)
    rows = [json.loads(line) for line in stream.getvalue().splitlines()]
    yield from as_otlp(
        row for row in rows if trace in (None, row["trace_id"]) and _meant(row, asked.texts)
    )


def _meant(row: Mapping[str, Any], texts: Texts) -> bool:
    return all(texts.get(name) in (None, row.get(name)) for name in ("service", "instance"))


def _reported(asked: Asked[Report]) -> dict[str, Any]:
    """What the report says, by path."""
    if asked.source.files:
        with stored(asked.source) as (own, _):
            return _reported(asked.but(source=own))
    made = json.loads(commands.ask(asked))
    return {path: _at(made, path) for path in _REPORTED}


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _case(said: Mapping[str, Any], slo: str | None) -> str:
    run = ["report", *(["--slo", slo] if slo else []), "--output", "json"]
    lines = [
        'title = "TODO: what is wrong, in a sentence"',
        'kind = "TODO"',
        'source = "overrun admin bug-report: names hashed, no texts, times from 2026-01-01 on"',
        "",
        "[[step]]",
        f'import = ["{_INPUT}"]',
        "",
        "[[step]]",
        f"run = {json.dumps(run)}",
        "",
        "# What was reported. Write what is right in place of what is wrong, and remove what does not matter.",
    ]
    for path, value in said.items():
        shown = '"null"' if value is None else json.dumps(value)
        lines += ["[[step.right]]", f'json = "{path}"', f"is = {shown}", ""]
    return "\n".join(lines)


def _told(
    out: Path, size: int, said: Mapping[str, Any], copied: Mapping[str, Any], changed: list[str]
) -> str:
    parts = [f"wrote {out}: {_INPUT} ({say_count(size, 'byte')}) and case.toml"]
    if size > MOST_BYTES:
        parts.append(
            f"it is larger than the {MOST_BYTES:,} bytes of a corpus case: narrow it with --from and --to, or --trace"
        )
    if changed:
        parts += [
            f"the copy does not show the same: {name} is {copied.get(name)!r}, and {said[name]!r} of the original"
            for name in changed
        ]
    else:
        parts.append("the copy shows the same report as the original")
    parts.append(f"look at it before you send it: zstd -dc {shlex.quote(str(out / _INPUT))} | less")
    return "\n".join(parts)
