"""How are the rows of a file framed? An unpacked file in, its rows as JSON texts, lines or one text out, each shape read in one place.

Rows are the objects of a JSON document, of a list of them, of one a line, of several that follow one another (also among a program's other words, or behind
`TIME WORDS` in a line), or the lines of a table whose first line has names.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from overrun.collector.errors import BadPayload

MOST_BYTES: Final = 512 << 20  # of a document, a line or a text
MOST_CELL: Final = 16 << 20  # characters of a cell in a table
MOST_COLUMNS: Final = 4_096  # of a table; the widest export that was seen (Phoenix) has 300
HEAD: Final = 1 << 18  # bytes by which a text is known
LONGEST_HEAD: Final = 1 << 20  # bytes in which the first objects are looked for
_FIRST: Final = 20  # objects by which a file is known
_DEEPEST: Final = 8  # lists and names within one another
_DELIMITERS: Final = ",;\t|"
# A name of the first line of a table.
_COLUMN = re.compile(r'\ufeff?\s*(?:"[^"\n]{0,200}"|[\w@%#][\w /%.()+@:-]{0,200})?\s*')
# Values of a JSON document: each takes up to 200 bytes of memory, however few it takes in the file. As many as the file has bytes ten times over (what tools
# write packs to about one byte a value) and some more; 29 kB hold ten million empty ones.
MAX_VALUES, SPARE_VALUES, VALUES_A_BYTE = 20_000_000, 1_000_000, 10
_OPENS = re.compile(r"[{\[]")
# Python's json writes them, and JSON has none.
_NOT_FINITE = re.compile(r"\bNaN\b|\bInfinity\b")
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d+)?")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the rows of a form stand: below which names of what a file holds, and what tells that an object is one itself."""

    names: frozenset[str] = frozenset()
    is_row: Callable[[Any], bool] = bool
    each: tuple[str, ...] = ()  # lists of a row whose elements are rows of their own
    columns: str = ""  # a list beside which others hold the same elements' other values

    def of(self, value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
        """The rows in a value: lists are opened, and what stands below the names; an answer's columns and rows become objects."""
        if depth > _DEEPEST:
            return
        if isinstance(value, list):
            for one in value:
                if isinstance(one, dict | list):
                    yield from self.of(one, depth + 1)
        elif isinstance(value, dict):
            inner = [value[name] for name in self.names if isinstance(value.get(name), dict | list)]
            if inner and not self.is_row(value):
                for one in inner:
                    yield from self.of(one, depth + 1)
            else:
                yield from _below_columns(value) or (value,)

    def parts(self, row: dict[str, Any], up: int) -> Iterator[dict[str, Any]]:
        """A row as it is, or parted: what is its own, `{up, own}`, and each element of its lists, `{up, of, each}`; elements of a run may be many, and its own
        fields long.

        Raises:
            BadPayload: lists that stand beside one another differ in length.
        """
        if not self.each and not self.columns:
            yield row
            return
        own, elements = dict(row), []
        for path in self.each:
            inner: Any = row
            for name in path.split("."):
                inner = inner.get(name) if isinstance(inner, dict) else None
            own.pop(path.partition(".")[0], None)
            if isinstance(inner, list):
                elements += [(path.rpartition(".")[2], one) for one in inner]
        if isinstance(row.get(self.columns), list):
            own = {name: one for name, one in row.items() if not isinstance(one, list)}
            elements = [(self.columns, one) for one in _zipped(row, self.columns)]
        yield {"up": up, "own": own}
        yield from ({"up": up, "of": of, "each": one} for of, one in elements)


def _zipped(row: dict[str, Any], first: str) -> list[dict[str, Any]]:
    """The elements of lists that stand beside one another; empty ones are none."""
    lists = {name: one for name, one in row.items() if isinstance(one, list) and one}
    for name, one in lists.items():
        if len(one) != len(row[first]):
            raise BadPayload(
                f"{name} has {len(one):,} entries and {first} {len(row[first]):,}: they cannot be matched to requests"
            )
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _below_columns(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a table whose columns are named beside them, as query APIs answer; none of anything else."""
    columns, rows = value.get("columns"), value.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list):
        return []
    names = [str(one.get("name") if isinstance(one, dict) else one) for one in columns]
    return [dict(zip(names, row, strict=False)) for row in rows if isinstance(row, list)]


def head_objects(head: bytes) -> list[Any]:
    """The first objects in the beginning of a file, decoded; a last one that is cut off is left out."""
    text = _text(head)
    if (delimiter := table_delimiter(text)) is not None:
        whole = text if len(head) < LONGEST_HEAD else text[: text.rfind("\n") + 1]
        return [
            json.loads(row)
            for row in itertools.islice(_cells(io.StringIO(whole), delimiter), _FIRST)
        ]
    # Of a list that is cut off the first elements are whole.
    inner = text.lstrip().removeprefix("[") if len(head) >= LONGEST_HEAD else text
    found = (
        one
        for value, _ in _decoded(inner)
        for one in (value if isinstance(value, list) else [value])
    )
    return list(itertools.islice(found, _FIRST))


def rows(path: Path, stream: IO[bytes], head: bytes, where: Rows) -> Iterator[str]:
    """Every row of a file as the text of a JSON object.

    Raises:
        BadPayload: a document, line or cell is larger than what is read at once.
    """
    text = _text(head[:LONGEST_HEAD])
    if (delimiter := table_delimiter(text)) is not None:
        file = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
        try:
            yield from _cells(file, delimiter)
        finally:
            file.detach()  # whoever opened the stream closes it
        return
    by_line = _is_line_by_line(text)
    numbers = itertools.count(1)
    opened = where.names | {"columns"}
    parted = where.each or where.columns
    for value, own in _of_lines(path, stream) if by_line else _of_document(path, stream):
        if isinstance(value, dict) and not parted and opened.isdisjoint(value):
            yield own
            continue
        for row in where.of(value):
            yield from map(encoded, where.parts(row, next(numbers)))


def cell(name: str, told: Any) -> Any:
    """What a cell holds; an id stays as it is written."""
    if not isinstance(told, str) or name.lower().endswith("id"):
        return told
    if _NUMBER.fullmatch(told):
        return float(told) if "." in told else int(told)
    if told[:1] in ("{", "[") and told[-1:] in ("}", "]"):
        try:
            return json.loads(told)
        except (ValueError, RecursionError):
            return told
    return told


def encoded(row: dict[str, Any]) -> str:
    """A row as the text of a JSON object; numbers that JSON does not have are nothing."""
    try:
        return msgspec.json.encode(row).decode()
    except UnicodeEncodeError:
        return json.dumps(row)  # half a character, which no row that is read has


def lines(stream: IO[bytes]) -> Iterator[str]:
    """Every line with something in it."""
    while line := stream.readline(MOST_BYTES + 1):
        if len(line) > MOST_BYTES:
            raise _too_large("line")
        if line.strip():
            yield _text(line).rstrip("\r\n")


def whole(stream: IO[bytes]) -> str:
    """A file as one text."""
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise _too_large("document")
    return _text(data)


def table_delimiter(text: str) -> str | None:
    """What stands between the names of a table's first line; None if it is no table."""
    first = text.lstrip("\n\r").partition("\n")[0].rstrip("\r")
    if first[:1] in ("{", "["):
        return None
    for delimiter in _DELIMITERS:
        names = first.split(delimiter)
        if 1 < len(names) <= MOST_COLUMNS and all(map(_COLUMN.fullmatch, names)) and any(names):
            return delimiter
    return None


def batches(given: Iterable[str], most_bytes: int) -> Iterator[list[str]]:
    """Rows in lists of about so many bytes."""
    batch: list[str] = []
    size = 0
    for row in given:
        batch.append(row)
        size += len(row)
        if size >= most_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _text(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def _too_large(what: str) -> BadPayload:
    return BadPayload(
        f"it holds a {what} of more than {MOST_BYTES >> 20} MiB: write a row a line, or split it"
    )


def _is_line_by_line(text: str) -> bool:
    """Whether the first line is an object, or ends with one behind a logger's words."""
    first = text.lstrip().partition("\n")[0]
    at = first.find("{")
    return at >= 0 and _is_object(first[at:].strip())


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def check_values(values: int, path: Path) -> None:
    """Refuse a JSON text that becomes much more in memory than its file is.

    Raises:
        BadPayload: it has too many values.
    """
    most = min(MAX_VALUES, SPARE_VALUES + VALUES_A_BYTE * path.stat().st_size)
    if values > most:
        raise BadPayload(
            f"it holds about {values:,} values at once, expected at most {most:,} for its size: write a request a line, or split it"
        )


def _values(text: str) -> int:
    return text.count(",") + text.count("{") + text.count("[")


def _of_document(path: Path, stream: IO[bytes]) -> Iterator[tuple[Any, str]]:
    text = whole(stream)
    check_values(_values(text), path)
    yield from _decoded(text)


def _of_lines(path: Path, stream: IO[bytes]) -> Iterator[tuple[Any, str]]:
    for line in lines(stream):
        at = line.find("{")
        if at < 0 or not (row := line[at:].strip()).endswith("}"):
            continue
        check_values(_values(row), path)
        try:
            value = msgspec.json.decode(row)
        except (msgspec.DecodeError, RecursionError):
            if _NOT_FINITE.search(row):
                yield from _decoded(row)
        else:
            if isinstance(value, dict):
                yield value, row


def _decoded(text: str) -> Iterator[tuple[Any, str]]:
    """The objects and lists in a text and their own text; what stands between them is left out."""
    at = 0
    while (opens := _OPENS.search(text, at)) is not None:
        at = opens.start()
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            # What opens here is no JSON: the next candidate begins a line.
            following = text.find("\n", at)
            if following < 0:
                return
            at = following + 1
            continue
        own = text[at:end]
        yield value, encoded(value) if _NOT_FINITE.search(own) else own
        at = end


def _cells(file: IO[str], delimiter: str) -> Iterator[str]:
    """The rows of a table as objects of texts, without empty cells; a column without a name is left out."""
    csv.field_size_limit(MOST_CELL)
    try:
        for row in csv.DictReader(file, delimiter=delimiter):
            yield encoded(
                {
                    name: cell
                    for name, cell in row.items()
                    if name and cell not in (None, "") and isinstance(cell, str)
                }
            )
    except csv.Error as error:
        raise BadPayload(f"it is no table that can be read: {error}") from error
