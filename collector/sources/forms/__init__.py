"""Which form is a file of, and what does it hold? A form is one `.sql` file: a header in TOML on comment lines, and one SELECT into documented columns.

    -- title = "spans of Go's stdouttrace exporter"
    -- source = "go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
    -- read = "objects"                      # a row a JSON object or line of a table; or "lines", or "text" for the file as one
    -- rows = ["data"]                       # names below which the rows stand in an answer, as far as an object has not itself what is needed
    -- needs = ["SpanContext.TraceID"]       # paths that the first objects have, `path ~ pattern` for a value, `a | b` for either; of lines and texts patterns
    -- [expected]                            # what comes of the sample beside it, NAME.sample.EXTENSION
    -- spans = 2
    select row->>'$.Name' as name, ... from f

The SELECT reads the table `f(number, row)`, or `line` or `text` in the place of `row`, a batch of the file at a time; with `whole = true` all of it at once.
Of several forms that know a file the one that needs most is taken; a tie is reported. `refuse` in place of a SELECT says why nothing can be read.
"""

from __future__ import annotations

import functools
import itertools
import re
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from overrun.collector.errors import BadPayload, ConfigError
from overrun.collector.sources import log_lines
from overrun.collector.sources.account import Account
from overrun.collector.sources.forms import child, framing, locked, records
from overrun.collector.sources.load_tests import from_rows, genai_perf
from overrun.collector.sources.load_tests.result import LoadTest

FOLDER: Final = Path(__file__).parent
_KEYS = {"title", "source", "read", "needs", "whole", "timed", "figures"}
_KEYS |= {"refuse", "expected", "note", "empty", "rows", "each", "columns", "tool", "python"}
_READS: Final = {
    "objects": ("row", "json"),
    "lines": ("line", "varchar"),
    "text": ("text", "varchar"),
}
# Characters of rows at once. An extraction parses its row again: 16 MB of LiteLLM's rows, with 17 of them, took 600 MB (28 November 2026).
_BATCH: Final = 2 << 20
_LOOKED_AT: Final = 50  # rows by which a form is known
_LEAST_SHARE: Final = (
    1 / 3
)  # of the first objects; a session's or a log's other lines stand between them


@dataclass(frozen=True, slots=True)
class Form:
    """One form: its name, what it is, by what it is known, and the SELECT (empty where `refuse` says why there is none). Lines that are `timed` come with when
    each was written, `at_ns` since 1970; `figures` says that the lines between them have an engine's figures."""

    name: str
    title: str
    sql: str
    read: str = "objects"
    needs: tuple[str, ...] = ()
    rows: frozenset[str] = frozenset()
    each: tuple[str, ...] = ()
    columns: str = ""
    whole: bool = False
    timed: bool = False
    figures: bool = False
    is_own: bool = False  # of a user, and run in a process of its own
    refuse: str = ""
    note: str = ""
    tool: str = ""  # the load generator whose runs it has
    python: bool = False  # its rows are read by Python, and it has no SELECT
    empty: str = ""  # what to do where no row comes
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """By what a file is known to be of this form."""
        return f"it has {', '.join(self.needs)}" if self.read == "objects" else "its lines match"

    @property
    def where(self) -> framing.Rows:
        """Where its rows stand."""
        return framing.Rows(
            self.rows,
            lambda value: all(_has(value, need) for need in self.needs),
            self.each,
            self.columns,
        )


def parse(name: str, text: str) -> Form:
    """A form from its file's text; any SELECT without a header is one that is read as objects.

    Raises:
        ConfigError: the header is no TOML, or has a key or value that is not known.
    """
    head = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("--"):
            break
        head.append(line.removeprefix("--").removeprefix(" "))
    sql = "\n".join(text.splitlines()[len(head) :]).strip()
    try:
        told = tomllib.loads("\n".join(head))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"form {name}: its header is no TOML: {error}") from error
    if unknown := sorted(told.keys() - _KEYS):
        raise ConfigError(
            f"form {name}: no key {unknown[0]!r}, expected some of {', '.join(sorted(_KEYS))}"
        )
    if told.get("read", "objects") not in _READS:
        raise ConfigError(
            f"form {name}: read is {told['read']!r}, expected one of {', '.join(_READS)}"
        )
    if not sql and not told.get("refuse") and not told.get("python"):
        raise ConfigError(f"form {name}: it has no SELECT")
    told.pop("source", None)
    needs, rows = tuple(told.pop("needs", ())), frozenset(told.pop("rows", ()))
    title, each = told.pop("title", name), tuple(told.pop("each", ()))
    return Form(name=name, title=title, sql=sql, needs=needs, rows=rows, each=each, **told)


@functools.cache
def catalogue() -> tuple[Form, ...]:
    """Every form of this folder."""
    return of_folder(FOLDER)


def of_folder(folder: Path) -> tuple[Form, ...]:
    """The forms of a folder, by their names.

    Raises:
        ConfigError: there is no such folder, or one of its forms cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(f"[forms] folder: there is no folder {folder}")
    paths = sorted(folder.glob("*.sql"))
    return tuple(parse(path.stem, path.read_text(encoding="utf-8")) for path in paths)


def of_map(path: Path) -> Form:
    """The form that a user's map is.

    Raises:
        ConfigError, BadPayload: it cannot be read, or is more than one SELECT.
    """
    try:
        form = parse(path.stem, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the map {path} cannot be read: {error}") from error
    locked.check(form.sql)
    return replace(form, is_own=True)


def recognise(head: bytes, forms: Sequence[Form]) -> tuple[Form | None, list[Form]]:
    """The form of a file that begins so, None where none knows it, and the others that know it as well."""
    text = head[: framing.HEAD].decode("utf-8-sig", "replace")
    return _recognised(framing.head_objects(head), text, forms)


def _recognised(
    objects: Sequence[Any], text: str, forms: Sequence[Form]
) -> tuple[Form | None, list[Form]]:
    known = [form for form in forms if form.needs and _knows(form, objects, text)]
    if not known:
        return None, []
    most = max(len(form.needs) for form in known)
    best = [form for form in known if len(form.needs) == most]
    return best[0], best[1:]


def _knows(form: Form, objects: Sequence[Any], text: str) -> bool:
    if form.read != "objects":
        return all(re.search(pattern, text) for pattern in form.needs)
    where = form.where
    rows = list(itertools.islice(where.of(objects), _LOOKED_AT))
    fits = sum(map(where.is_row, rows))
    return fits > 0 and fits >= _LEAST_SHARE * len(rows)


def _has(value: Any, need: str) -> bool:
    """Whether one of the alternatives stands in a value: a path, or one with the pattern of what stands there."""
    for alternative in need.split(" | "):
        path, _, pattern = alternative.partition(" ~ ")
        found = _at(value, path.strip().split("."))
        if any(not pattern or re.fullmatch(pattern, str(one)) for one in found):
            return True
    return False


def _at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """What stands at a path: `*` is any key, and lists are looked through."""
    if isinstance(value, list) and value:
        for one in value[:20]:
            yield from _at(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict):
        if len(path) > 1 and (name := ".".join(path)) in value:
            yield value[name]  # a table's column
        inner: Iterable[Any] = (
            value.values() if path[0] == "*" else [value[path[0]]] if path[0] in value else ()
        )
        for one in inner:
            yield from _at(one, path[1:])


def read(
    form: Form, path: Path, stream: IO[bytes], head: bytes, account: Account
) -> Iterator[dict[str, Any]]:
    """The OTLP requests in a file of a form, `stream` unpacked.

    Raises:
        BadPayload: the form says why it cannot be read, or its SELECT fails on this file.
    """
    if form.refuse:
        raise BadPayload(f"it looks like {form.title}: {form.refuse.replace('{file}', str(path))}")
    account.read_as(form.title, form.why if form.needs else f"by the map {form.name}")
    account.is_concluded = True
    if form.note:
        account.note(form.note)
    written_ns = log_lines.dated_ns(path.stat().st_mtime_ns)
    for batch in _batches(form, path, stream, head):
        made = _selected(form, batch, written_ns)
        yield from records.documents(made, account, form.name)


def load_test(form: Form, path: Path, stream: IO[bytes], head: bytes) -> LoadTest:
    """The runs in a file of a load generator's form, `stream` unpacked.

    Raises:
        BadPayload: its SELECT fails on this file.
    """
    written_ns = log_lines.dated_ns(path.stat().st_mtime_ns)
    if form.python:
        rows_of_it = framing.rows(path, stream, head, form.where)
        return genai_perf.genai_perf(map(msgspec.json.decode, rows_of_it))
    batches = _batches(form, path, stream, head)
    rows = itertools.chain.from_iterable(_selected(form, one, written_ns) for one in batches)
    return from_rows.load_test(form.tool, rows)


def of_value(value: Any, account: Account) -> list[dict[str, Any]] | None:
    """The OTLP requests in a decoded document, or the rows of a table; None where no form knows it.

    Raises:
        BadPayload: the SELECT of its form fails on it, or none of its rows is of use.
    """
    objects = value[:_LOOKED_AT] if isinstance(value, list) else [value]
    spans = [one for one in catalogue() if one.read == "objects" and not one.tool]
    form, _ = _recognised(objects, "", spans)
    if form is None or form.refuse:
        return None
    account.read_as(form.title, form.why)
    found: list[dict[str, Any]] = []
    rows = map(framing.encoded, form.where.of(value))  # no form of spans parts its rows
    for batch in framing.batches(rows, framing.MOST_BYTES if form.whole else _BATCH):
        found += records.documents(_selected(form, batch, time.time_ns()), account, form.name)
    if not account.used:
        raise BadPayload(unused(form, account))
    return found


def unused(form: Form, account: Account) -> str:
    """That no row of a file is of use, and why."""
    lost = account.lost or form.empty
    said = f"it was read as {form.title}, and none of its {account.rows:,} rows is of use"
    return said + (f" ({lost})" if lost else "")


def _selected(form: Form, batch: list[str], written_ns: int) -> Iterator[dict[str, Any]]:
    column, kind = _READS[form.read]
    times = [log_lines.time_ns(line, written_ns) for line in batch] if form.timed else None
    if form.is_own:
        yield from child.select(child.Job(form.sql, column, kind, written_ns, batch, times))
        return
    with locked.Locked(column, kind, written_ns) as database:
        yield from database.select(form.sql, batch, times)


def _batches(form: Form, path: Path, stream: IO[bytes], head: bytes) -> Iterator[list[str]]:
    if form.read == "text":
        yield [framing.whole(stream)]
        return
    given = (
        framing.rows(path, stream, head, form.where)
        if form.read == "objects"
        else framing.lines(stream)
    )
    yield from framing.batches(given, framing.MOST_BYTES if form.whole else _BATCH)
