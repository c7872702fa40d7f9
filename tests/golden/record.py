"""What is each input answered? All answers as texts, one compressed file of them, and the first difference of two in words.

A record is lines of JSON, one an input, ordered by name, compressed with zstd: `{"input": NAME, "answers": {"report.json": TEXT, ...}}`.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard
from typer.testing import CliRunner

from overrun.analysis.front import commands
from overrun.analysis.front import question_table as table
from overrun.analysis.front.asked import Asked as Question
from overrun.analysis.front.asked import Source
from overrun.analysis.front.question_table import Entry
from overrun.analysis.front.report import Report, from_json
from overrun.analysis.whatif import catalogue
from overrun.analysis.whatif.fix_pages import pages
from overrun.analysis.words.encoding import encode
from overrun.analysis.words.errors import AnalysisError
from overrun.cli import app
from overrun.collector.config import load
from overrun.collector.errors import CollectorError
from tests.golden.inputs import Asked, Input, inputs, small

ANSWERED: Final = (AnalysisError, CollectorError)
# A window of 2^27 bytes lets one input's report be said as what it shares with another's.
_PACKED: Final = zstandard.ZstdCompressionParameters.from_level(
    19, window_log=27, enable_ldm=True, threads=2
)
_WIDTH: Final = 80
_ARITHMETIC: Final = ("retries", "step_cap", "timeout_fallback", "together")
_SHOWN: Final = 160

Answers = dict[str, str]


def answers(one: Input) -> Answers:
    """Every answer about one input, by `PART.question.form`; an answer that is refused is the refusal."""
    with tempfile.TemporaryDirectory(prefix="overrun-golden-") as work:
        made: Answers = {}
        for asked in one.make(Path(work)):
            for name, text in _answers(asked, thorough=one.thorough):
                made[f"{asked.name.strip('-')}.{name}".lstrip(".")] = _settled(text, work)
    return made


def named(name: str, *, some: bool) -> tuple[str, Answers]:
    """The name of an input, of all or of those of the suite, and its answers: what a process of its own is asked."""
    known = small() if some else inputs()
    return name, answers(next(one for one in known if one.name == name))


def _settled(text: str, work: str) -> str:
    """A text without the names of temporary folders."""
    return re.sub(re.escape(work) + r"[^\s'\"]*/", "", text)


def _answers(asked: Asked, *, thorough: bool) -> Iterator[tuple[str, str]]:
    if asked.command:
        done = CliRunner().invoke(app, list(asked.command))
        yield f"{asked.command[0]}.text", f"exit {done.exit_code}\n{done.output}"
        return
    settings = load(asked.config, flags={"collector.db": str(asked.db)})
    source = Source(settings, asked.db, None)
    simulated: dict[str, object] = {} if thorough else {"simulate": None}
    report: Report | None = None
    for name, body, texts in _forms(source, table.REPORT, asked.window, simulated):
        yield f"report.{name}", texts
        report = from_json(body) if name == "json" else report
    for name, _, texts in _forms(source, table.FACTS, asked.window, {}):
        yield f"facts.{name}", texts
    if report is None:
        return
    if trace := next((one for f in report.findings for one in f.exemplars), _slowest(source)):
        for name, _, texts in _forms(source, table.TRACE, {"trace_id": trace}, {}):
            yield f"trace.{name}", texts
    for name, _, texts in _forms(source, table.COMPARE, _halves(report, asked), {}):
        yield f"compare.{name}", texts
    yield from _whatifs(source, asked, thorough=thorough)


def _forms(
    source: Source, entry: Entry[Any], texts: Mapping[str, str | None], host: Mapping[str, object]
) -> Iterator[tuple[str, bytes, str]]:
    """The answer as JSON and in each of its other forms; of a refusal only that."""
    # The name of a temporary folder would decide where lines break.
    db = source.flags() if source.db is None else f" --db {source.db.name}"
    known = {"width": _WIDTH, "colour": False, "source": db, "again": ""}
    try:
        body = _body(source, entry, texts, host)
    except ANSWERED as refused:
        yield "refused", b"", str(refused)
        return
    steady = _steady(json.loads(body))
    yield "json", body, json.dumps(steady, indent=0, ensure_ascii=False)
    answer = msgspec.convert(steady, type=entry.answer_type())
    for form in entry.forms:
        yield form, body, entry.written(form, answer, {**texts, **known})


def _body(
    source: Source, entry: Entry[Any], texts: Mapping[str, str | None], host: Mapping[str, object]
) -> bytes:
    assert source.db is not None
    return encode(commands.here(source.db, Question.read(entry, texts, source), host))


def _steady(value: Any, name: str = "") -> Any:
    """A JSON value without what differs between two runs: the last digits of sums that threads add up, and the time that a calibration took."""
    if isinstance(value, dict):
        return {key: _steady(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [_steady(one, name) for one in value]
    if isinstance(value, float):
        return 0.0 if name == "seconds" else float(f"{value:.10g}")
    return value


def _slowest(source: Source) -> str | None:
    try:
        listed = json.loads(_body(source, table.REQUESTS, {"limit": "1"}, {}))
    except ANSWERED:
        return None
    rows = listed.get("requests") or [{}]
    trace: str | None = rows[0].get("trace_id")
    return trace


def _halves(report: Report, asked: Asked) -> dict[str, str | None]:
    """The two halves of the window, as the two sides of a comparison."""
    start, end = report.window.start, report.window.end
    if start is None or end is None:
        return {"before": "-2h..-1h", "after": "-1h..now"}
    middle = start + (end - start) / 2
    bounds = [t.isoformat() for t in (start, middle, end + timedelta(milliseconds=1))]
    kept = {name: text for name, text in asked.window.items() if name == "slo"}
    return {**kept, "before": f"{bounds[0]}..{bounds[1]}", "after": f"{bounds[1]}..{bounds[2]}"}


def _whatifs(source: Source, asked: Asked, *, thorough: bool) -> Iterator[tuple[str, str]]:
    """What each fix would gain; of an input that is not `thorough` those for which no engine is calibrated, which takes 10 s."""
    for fix in pages() if thorough else _ARITHMETIC:
        texts = {**asked.window, "fix": fix}
        for name, _, said in _forms(source, table.WHATIF, texts, {"ask": catalogue.ask}):
            yield f"whatif-{fix}.{name}", said


def write(record: Mapping[str, Answers], path: Path) -> None:
    """Write a record; the same answers give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"input": name, "answers": record[name]}, ensure_ascii=False, sort_keys=True)
        for name in sorted(record)
    ]
    packer = zstandard.ZstdCompressor(compression_params=_PACKED)
    path.write_bytes(packer.compress("\n".join(lines).encode()))


def read(path: Path) -> dict[str, Answers]:
    """Read a record.

    Raises:
        FileNotFoundError: there is none at this path.
    """
    unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    lines = unpacker.stream_reader(path.read_bytes()).read().decode().split("\n")
    rows = [json.loads(line) for line in lines]
    return {row["input"]: row["answers"] for row in rows}


def differences(before: Mapping[str, Answers], now: Mapping[str, Answers]) -> list[str]:
    """One line for each input that is answered otherwise: which answer, where in it, what it was and what it is."""
    found = []
    for name in sorted({*before, *now}):
        if name not in now or name not in before:
            found.append(f"{name}: is {'missing now' if name in before else 'new'}")
        elif before[name] != now[name]:
            found.append(f"{name}: {_first(before[name], now[name])}")
    return found


def _first(before: Answers, now: Answers) -> str:
    """The first answer that differs, in words; further ones are counted."""
    changed = [part for part in sorted({*before, *now}) if before.get(part) != now.get(part)]
    part = changed[0]
    more = f" (and {len(changed) - 1} more answers)" if len(changed) > 1 else ""
    if part not in now or part not in before:
        return f"{part} is {'missing now' if part in before else 'new'}{more}"
    where = _in_json if part.endswith(".json") else _in_text
    return f"{part}, {where(before[part], now[part])}{more}"


def _in_text(before: str, now: str) -> str:
    lines, others = before.splitlines(), now.splitlines()
    for number, (line, other) in enumerate(zip(lines, others, strict=False), 1):
        if line != other:
            return f"line {number} was {line[:_SHOWN]!r} and is {other[:_SHOWN]!r}"
    return f"it had {len(lines)} lines and has {len(others)}"


def _in_json(before: str, now: str) -> str:
    return next(
        _paths(json.loads(before), json.loads(now), ""), "the order of its names was another"
    )


def _paths(before: Any, now: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in [*before, *(one for one in now if one not in before)]:
            yield from _paths(before.get(name), now.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for at, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from _paths(one, other, f"{path}.{at}")
    elif before != now:
        yield f"{path} was {json.dumps(before)[:_SHOWN]} and is {json.dumps(now)[:_SHOWN]}"
