"""How are the rows of a file framed? An unpacked file in, its rows as JSON texts, lines or one text out, each shape read in one place.

Rows are the objects of a JSON document, of a list of them, of one a line, of several that follow one another (also among a program's other words, or behind
`TIME WORDS` in a line), or the lines of a table whose first line has names.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Final

import msgspec

from overrun.collector.errors import BadPayload

MOST_BYTES: Final = 512 << 20  # of a document, a line or a text
MOST_CELL: Final = 16 << 20  # characters of a cell in a table
MOST_COLUMNS: Final = 4_096  # of a table; the widest export that was seen (Phoenix) has 300
HEAD: Final = 1 << 16  # bytes by which a text is known
LONGEST_HEAD: Final = 1 << 20  # bytes in which the first objects are looked for
_FIRST: Final = 20  # objects by which a file is known
_DELIMITERS: Final = ",;\t|"
# A name of the first line of a table.
_COLUMN = re.compile(r'\ufeff?\s*(?:"[^"\n]{0,200}"|[\w@%#][\w /%.()+@:-]{0,200})?\s*')
_OPENS = re.compile(r"[{\[]")
# Python's json writes them, and JSON has none.
_NOT_FINITE = re.compile(r"\bNaN\b|\bInfinity\b")
_DECODER = json.JSONDecoder()


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
    return [value for value, _ in itertools.islice(_decoded(inner), _FIRST)]


def rows(stream: IO[bytes], head: bytes) -> Iterator[str]:
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
    elif _is_line_by_line(text):
        yield from _of_lines(stream)
    else:
        yield from (row for _, row in _decoded(whole(stream)))


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


def _of_lines(stream: IO[bytes]) -> Iterator[str]:
    for line in lines(stream):
        at = line.find("{")
        if at < 0 or not (row := line[at:].strip()).endswith("}"):
            continue
        if _is_object(row):
            yield row
        elif _NOT_FINITE.search(row):
            yield from (row for _, row in _decoded(row))


def _decoded(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects in a text and their own text, those of a list one by one; what stands between them is left out."""
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
        if isinstance(value, dict):
            own = text[at:end]
            yield value, json.dumps(_finite(value)) if _NOT_FINITE.search(own) else own
        elif isinstance(value, list):
            yield from ((one, json.dumps(_finite(one))) for one in value if isinstance(one, dict))
        at = end


def _finite(value: Any) -> Any:
    """A decoded value with nothing in the place of numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _cells(file: IO[str], delimiter: str) -> Iterator[str]:
    """The rows of a table as objects of texts, without empty cells; a column without a name is left out."""
    csv.field_size_limit(MOST_CELL)
    encode: Callable[[Any], str] = json.dumps
    try:
        for row in csv.DictReader(file, delimiter=delimiter):
            yield encode(
                {
                    name: cell
                    for name, cell in row.items()
                    if name and cell not in (None, "") and isinstance(cell, str)
                }
            )
    except csv.Error as error:
        raise BadPayload(f"it is no table that can be read: {error}") from error
