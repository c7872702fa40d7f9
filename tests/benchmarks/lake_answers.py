"""Does a lake answer as a file does, at what cost, and how soon? The same rows in a file of DuckDB 2, in a file of the lake's DuckDB, and in a lake.

`--make FOLDER` (with DuckDB 2) makes a synthetic file, writes it as parts as `overrun migrate` does, and answers from it. `--ask FOLDER` (with the lake's Python) moves the
parts into a lake and into a file, and answers from both. Each answer is written beside its CPU time: CPU of the whole process, the least of three after one that is not
counted. `make bench-lake` calls both. `fresh` measures from an acknowledgement to the request in an answer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import statistics
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from overrun.analysis.front.question_table import ENTRIES, PREFIX
from overrun.analysis.front.questions import Prepared
from overrun.analysis.words.encoding import encode
from overrun.collector.config import Settings
from overrun.collector.lifecycle.move_in import read_parts
from overrun.collector.lifecycle.move_out import write_parts
from overrun.collector.store import database
from overrun.collector.store.database import open_store
from overrun.collector.store.lake.address import LakeAddress
from overrun.collector.store.lake.lake import open_lake
from overrun.collector.store.store import Store
from tests.benchmarks import results
from tests.benchmarks.analysis_store import END, SPANS_A_REQUEST, make
from tests.collector.conftest import MS, T0_NS, body, chat
from tests.conftest import ServerProcess
from tests.lake.processes import post

SCRIPT = "make bench-lake"
REQUESTS, _A_COMMIT = 200_000, 2_000
# By name: the question, and what is asked with it. The first ones read a sample of the window, the others all of it.
QUESTIONS = {
    "report with findings, 200,000 requests": ("report", {"since": "24h"}),
    "report with findings, 50,000 requests": ("report", {"since": "6h"}),
    "series": ("series", {"since": "24h"}),
    "heat map": ("heatmap", {"since": "24h"}),
    "list of requests": ("requests", {"since": "24h"}),
    "cohorts": ("cohorts", {"since": "6h"}),
}
_REPEATS = 3


def answers(store: Store) -> dict[str, dict[str, Any]]:
    """Per question the answer and the CPU of it in ms."""
    found = {}
    for name, (path, texts) in QUESTIONS.items():
        asked = Prepared.read(ENTRIES[path], texts, Settings(), now=END)
        took, answer = [], b""
        for _ in range(1 + _REPEATS):
            began = time.process_time()
            answer = encode(asked.answer(store.reading))
            took.append(1e3 * (time.process_time() - began))
        print(name, [round(ms) for ms in took], flush=True)
        found[name] = {"ms": min(took[1:]), "answer": json.loads(answer), "hash": hashlib.sha256(answer).hexdigest()}  # fmt: skip
    return found


def make_file(folder: Path) -> None:
    """A file of REQUESTS requests in a day, its parts, and its answers."""
    store = make(folder / "two.db", REQUESTS, 1.0)
    of_trace = f"1 + trace_lo // {_A_COMMIT}"
    for sql in (
        f"update requests set batch = {of_trace}",
        f"update llm_calls set batch = {of_trace}",
        f"update spans set seq = (({of_trace})::bigint << 24) | (trace_lo % {_A_COMMIT} * {SPANS_A_REQUEST} + span_id - 1)::bigint",
        "update spans set shape = shape + 1",  # a collector's numbers begin with one
        "update shapes set shape = shape + 1",
        f"insert into batches select {of_trace} as batch, max(start_ns), count(*), 0 from spans group by all",
        "checkpoint",
    ):
        store.connection.execute(sql)
    write_parts(store, folder / "parts")
    (folder / "two.json").write_text(json.dumps(answers(store)))
    store.close()
    server = ServerProcess(folder / "fresh.db")
    figure = fresh(server.http, server.http, "file")
    server.stop()
    (folder / "fresh.json").write_bytes(msgspec.json.encode([figure]))


def ask_both(folder: Path, address: str) -> None:
    """The parts in a lake and in a file of this DuckDB, and the answers of both."""
    lake = open_lake(LakeAddress.read(address), memory_limit="1GB")
    read_parts(folder / "parts", lake)
    (folder / "lake.json").write_text(json.dumps(answers(lake)))
    lake.close()
    database.LEAST_DUCKDB = (1, 5, 5)  # of what is measured here alone
    store = open_store(folder / "one.db", create=True, memory_limit="1GB")
    for path in sorted((folder / "parts").glob("*/*.parquet")):
        store.connection.execute(f"insert into {path.stem} by name select * from read_parquet('{path}')")  # fmt: skip
    store.connection.execute("checkpoint")
    (folder / "one.json").write_text(json.dumps(answers(store)))
    store.close()


def compare(folder: Path) -> list[results.Figure]:
    """What the three said and took."""
    two, one, lake = (json.loads((folder / f"{n}.json").read_text()) for n in ("two", "one", "lake"))  # fmt: skip
    figures = msgspec.json.decode((folder / "fresh.json").read_bytes(), type=list[results.Figure])
    conditions = f"{REQUESTS:,} requests of a day with 10 spans each, moved by `overrun migrate` from a file of DuckDB 2, local folder; CPU, least of {_REPEATS}"
    for name in QUESTIONS:
        equal = [_alike(lake[name]["answer"], of[name]["answer"]) for of in (one, two)]
        figures.append(
            results.measured(
                f"CPU of an answer, lake against file of the same DuckDB: {name}", round(lake[name]["ms"] / one[name]["ms"], 2), "times", conditions=conditions, script=SCRIPT,
                more={
                    "lake, ms": round(lake[name]["ms"]), "file of 1.5.5, ms": round(one[name]["ms"]), "file of 2.0.1, ms": round(two[name]["ms"]),
                    "equal to the file of 1.5.5": _said(equal[0], lake[name]["hash"] == one[name]["hash"]),
                    "equal to the file of 2.0.1": _said(equal[1], lake[name]["hash"] == two[name]["hash"]),
                },
            )
        )  # fmt: skip
    return figures


def _said(alike: bool, same: bool) -> str:
    return "every byte" if same else "but for the last digits of sums" if alike else "no"


def _alike(one: object, other: object) -> bool:
    """Whether two answers are equal but for the last digits of numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other


def fresh(sent: str, asked: str, what: str, bodies: int = 20) -> results.Figure:
    """Seconds from the acknowledgement of a body to its request in an answer; addresses of who takes it and of who is asked."""
    took = []
    known = _requests(asked)
    for trace in range(1_000, 1_000 + bodies):
        spans = chat(trace, start_ms=(time.time_ns() - T0_NS) // MS)
        assert post(sent, body(spans)) == 200
        began = time.monotonic()
        while (seen := _requests(asked)) <= known:
            time.sleep(0.05)
        took.append(time.monotonic() - began)
        known = seen
        time.sleep(0.5)
    return results.measured(
        f"Seconds from an acknowledgement to the request in an answer: {what}",
        round(statistics.median(took), 1),
        "s",
        conditions=f"default settings (quiet_s = 2), {bodies} bodies of one request, one after the other, over HTTP",
        script=SCRIPT,
        more={"most": round(max(took), 1), "least": round(min(took), 1)},
    )


def _requests(address: str) -> int:
    with urllib.request.urlopen(f"{address}{PREFIX}/holdings", timeout=60) as answer:
        return int(json.load(answer)["requests"])


def main() -> None:
    """One of the two steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--make", type=Path)
    parser.add_argument("--ask", type=Path)
    parser.add_argument("--store", default="")
    asked = parser.parse_args()
    if asked.make:
        make_file(asked.make)
    if asked.ask:
        ask_both(asked.ask, asked.store)


if __name__ == "__main__":
    main()
