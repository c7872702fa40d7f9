"""Which rows stand in a text that is neither JSON nor a table? Lines of `key=value` as programs log them, and W3C's extended log, which names its columns in a
comment. Text in, rows out, for whoever reads rows by the words of their columns.

Source: the formats of Go's loggers (logfmt), W3C WD-logfile (`#Fields`, `time` is when the transaction completed), as IIS and CloudFront write it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from overrun.collector.sources.log_lines import plain_lines, time_ns

_PAIR = re.compile(r'(?<![^\s{(])([A-Za-z_@][\w.@/-]{0,60})=(?:"([^"]{0,4000})"|([^\s"]{1,400}))')
_NAMES = "#Fields:"
_LEAST_PAIRS = 3  # of a line that is a row
_LONGEST = 16_000  # characters of a line
_TIME = "time_iso8601"  # as nginx calls the time when a line was written


def rows(text: str, written_ns: int) -> list[dict[str, Any]]:
    """The rows of such a text; none of any other."""
    return list(_of_fields(text)) if text.startswith("#") else _of_pairs(text, written_ns)


def _of_pairs(text: str, written_ns: int) -> list[dict[str, Any]]:
    """The rows of lines of `key=value`, if most lines are; when a line without a time among them was written stands before them."""
    found, lines = [], 0
    for line, when in plain_lines(text):
        lines += bool(line.strip())
        pairs = {name: quoted or bare for name, quoted, bare in _PAIR.findall(line[:_LONGEST])}
        if len(pairs) < _LEAST_PAIRS:
            continue
        if not pairs.keys() & {"time", "ts", "timestamp", "t"}:
            at = time_ns(line[:_LONGEST], written_ns) or (time_ns(when, written_ns) if when else 0)
            pairs |= {_TIME: at} if at else {}
        found.append(pairs)
    return found if 2 * len(found) > lines else []


def _of_fields(text: str) -> Iterator[dict[str, Any]]:
    """The rows below each line of names; a date and a time of their own are one."""
    names: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            names = line.removeprefix(_NAMES).split() if line.startswith(_NAMES) else names
            continue
        cells = line[:_LONGEST].split("\t" if "\t" in line else None)
        if not names or len(cells) != len(names):
            continue
        row = dict(zip(names, cells, strict=True))
        if "date" in row and "time" in row:
            row[_TIME] = f"{row.pop('date')}T{row.pop('time')}Z"
        yield row
