"""A map of somebody's, run in a process of its own: what it computes may take neither the memory nor the time of whoever asked, and it can write no file.

The parent starts it with the map and a batch of rows on its standard input, and reads the rows that it makes; whatever it does besides, it ends with it.
"""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any, Final

import msgspec

from overrun.collector.errors import BadPayload
from overrun.collector.sources.forms import locked

# Of addresses: Python, Arrow and DuckDB map 0.9 GB before a row is there.
_MOST_ADDRESSES: Final = 3 << 30
_MOST_ANSWER: Final = 64 << 20  # bytes of some rows at once
_AT_ONCE: Final = 500  # rows
_STARTS_S: Final = 20.0  # of a process, on a busy machine


class Job(msgspec.Struct, array_like=True):
    """What the process gets: the map, the rows of a file, and how they are named."""

    sql: str
    column: str
    kind: str
    written_ns: int
    batch: list[str]
    times: list[int | None] | None


def select(job: Job) -> Iterator[dict[str, Any]]:
    """The rows that a map makes of a batch.

    Raises:
        BadPayload: it is more than one SELECT, fails, or takes too long or too much memory.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    late = threading.Timer(locked.SECONDS + _STARTS_S, process.kill)
    late.start()
    try:
        if process.stdin is None or process.stdout is None:
            raise BadPayload("the map cannot be run: its process has no pipes")
        threading.Thread(target=_send, args=(process.stdin, job), daemon=True).start()
        while (answer := _frame(process.stdout)) is not None:
            if isinstance(answer, str):
                raise BadPayload(answer)
            if not answer:
                return
            yield from answer
        raise BadPayload(
            f"the map was ended: it took more than {locked.SECONDS:.0f} s or more memory than {_MOST_ADDRESSES >> 30} GB"
        )
    finally:
        late.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _send(pipe: IO[bytes], job: Job) -> None:
    try:
        pipe.write(msgspec.msgpack.encode(job))
        pipe.close()
    except (OSError, ValueError):
        return  # it has ended already, and the reader says why


def _frame(pipe: IO[bytes]) -> Any:
    """Rows, the words of a failure, or None where the process ended without either."""
    length = pipe.read(8)
    if len(length) < 8:
        return None
    size = int.from_bytes(length, "big")
    if size > _MOST_ANSWER:
        raise BadPayload(f"the map makes {_AT_ONCE} rows of more than {_MOST_ANSWER >> 20} MB")
    return msgspec.msgpack.decode(pipe.read(size))


def _limit() -> None:
    """No more memory, time or files than a map needs; where the system knows no such limits, the parent's clock is left."""
    wanted = (
        (resource.RLIMIT_AS, _MOST_ADDRESSES),
        (resource.RLIMIT_CPU, round(locked.SECONDS)),
        (resource.RLIMIT_FSIZE, 0),
    )
    for kind, most in wanted:
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):
            continue


def main() -> None:
    """Run the map of standard input."""
    # Nothing else may write between the answers, such as a progress bar.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
        _limit()
        try:
            for rows in _made(job):
                _answer(out, rows)
            _answer(out, [])
        except (BadPayload, MemoryError, OverflowError) as error:
            _answer(out, str(error) or "the map takes too much memory")


def _made(job: Job) -> Iterator[list[dict[str, Any]]]:
    sql = locked.check(job.sql)
    with locked.Locked(job.column, job.kind, job.written_ns) as database:
        rows = database.select(sql, job.batch, job.times)
        while some := list(itertools.islice(rows, _AT_ONCE)):
            yield some


def _answer(out: IO[bytes], told: Any) -> None:
    data = msgspec.msgpack.encode(told, enc_hook=str)
    out.write(len(data).to_bytes(8, "big") + data)


if __name__ == "__main__":
    main()
