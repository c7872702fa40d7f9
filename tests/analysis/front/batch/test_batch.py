"""A period of which no row is read has the numbers of a report that reads them all; a training set has the calls of an export."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import polars as pl
import pytest

from overrun.analysis.front.batch import engines, period
from overrun.analysis.front.batch.engines import DuckDb, Engine, NoEngine, Unreadable, in_spark
from overrun.analysis.front.batch.files import hourly
from overrun.analysis.front.batch.order import Ordered, values_at
from overrun.analysis.front.batch.period import NotForAll, measure
from overrun.analysis.front.batch.report import On, export_training, report
from overrun.analysis.front.batch.text import render
from overrun.analysis.front.questions import Question
from overrun.analysis.front.report import Report, build
from overrun.analysis.numbers.window import Window, query
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.slo import parse_slo
from overrun.collector.config import Settings
from overrun.collector.store.answers import fetch_frame
from overrun.models.sources import from_llm_calls, load_traces
from tests.analysis.builders import T0, at, calls_of, insert, insert_calls, requests, store

N = 4_000
WHOLE = Window(start=T0, end=at(N / 10))
ASKED = ("service", "instance", "model", "route", "tenant", "workload")


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    """Some minutes of requests; in the second half a tenth is slow in retrieval."""
    rng = np.random.default_rng(5)
    slow = (np.arange(N) >= N // 2) & (rng.random(N) < 0.1)
    error = rng.random(N) < 0.02
    made = requests(
        N,
        every_s=0.1,
        retrieval_ms=np.where(slow, 4_000.0, 100.0) * rng.lognormal(0.0, 0.2, N),
        queue_ms=np.where(rng.random(N) < 0.7, 0.0, 40.0),
        decode_ms=rng.lognormal(6.5, 0.4, N),
        ttft_retrieval_ms=np.where(slow, 4_000.0, 100.0),
        error=error,
        error_type=[None if not one else "APIError" for one in error],
        route=np.where(np.arange(N) % 3 == 0, "/rag", "/chat").tolist(),
        output_tokens=rng.integers(1, 400, N),
    )
    out = store()
    insert(out, made)
    insert_calls(out, calls_of(made))
    return out


@pytest.fixture(scope="module")
def folder(con: duckdb.DuckDBPyConnection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `overrun store export --folder` writes of it, in two shards."""
    out = tmp_path_factory.mktemp("hours")
    for kind in ("requests", "llm-calls"):
        found = fetch_frame(
            con, query(f"export_{kind.replace('-', '_')}"), {"start": None, "end": None}
        )
        for shard in (0, 1):
            path = out / kind / f"hour={T0:%Y-%m-%dT%H}" / f"shard=s{shard}"
            path.mkdir(parents=True)
            found[shard::2].write_parquet(path / f"{kind}.parquet")
    return out


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    made = DuckDb({"v_requests": [str(path) for path in folder.glob("requests/*/*/*")]})
    yield made
    made.close()


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges come from a part of the requests, as they do from a part of millions."""
    monkeypatch.setattr(period, "LEAST_DRAWN", 900)


def plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def of_report(con: duckdb.DuckDBPyConnection, window: Window, slo: str) -> Report:
    return build(con, window, parse_slo(slo), with_findings=False)


@pytest.mark.parametrize(
    ("window", "slo"),
    [
        (WHOLE, "ttft:1000 e2el:1200"),
        (WHOLE, "ttft:150"),
        (Window(start=at(100.0), end=at(300.0), route="/rag"), "e2el:900 percentile:50"),
    ],
)
def test_a_period_has_the_numbers_of_a_report(
    con: duckdb.DuckDBPyConnection, engine: Engine, window: Window, slo: str
) -> None:
    made, expected = measure(engine, window, parse_slo(slo)), of_report(con, window, slo)
    counts = (made.requests, made.incomplete, made.llm_calls, made.spans)
    held = expected.window
    assert counts == (held.requests, held.incomplete, held.llm_calls, held.spans)
    assert (made.goodput, made.errors) == (expected.goodput, expected.errors)
    assert same(plain(made.latency), plain(expected.latency))
    [path] = [one for one in made.paths if one.metric == expected.verdict.metric]
    rows = [row for row in expected.stages if row.group != "after_first_token"]
    assert len(path.stages) == len(rows) > 5
    for mine, theirs in zip(path.stages, rows, strict=True):
        assert same(plain(mine), plain(msgspec.structs.replace(theirs, amber=False)))
    assert path.gap_ms == pytest.approx(
        sum((row.tail_ms or 0.0) - (row.typical_ms or 0.0) for row in rows if row.stage is None)
    )


def same(a: Any, b: Any) -> bool:
    """Whether two answers are equal, numbers to the last digits: sums come in another order."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    return bool(a == b)


@pytest.mark.parametrize(
    "values",
    [
        np.full(500, 7.0),
        np.r_[np.full(300, 1.0), np.full(200, 9.0)],
        np.arange(500.0),
        np.arange(500.0)[::-1],
        np.r_[np.zeros(450), np.geomspace(1e-9, 1e9, 50)],
        np.array([3.0]),
    ],
    ids=["constant", "bimodal", "sorted", "reversed", "mostly_zero", "one"],
)
@pytest.mark.parametrize("part", ["even", "lowest", "none"])
def test_places_are_exact_whatever_the_sample(
    tmp_path: Path, values: np.ndarray[Any, Any], part: str
) -> None:
    frame = pl.DataFrame(
        {"value_ms": values, "start": [datetime(2026, 1, 1, tzinfo=UTC)] * len(values)}
    )
    frame.write_parquet(tmp_path / "x.parquet")
    made = DuckDb({"v_x": [str(tmp_path / "x.parquet")]})
    sample = {"even": values[::7], "lowest": np.sort(values)[:20], "none": values[:0]}[part]
    shares = (0.0, 0.5, 0.95, 0.999, 1.0)
    places = [p * (len(values) - 1) for p in shares]
    asked = Ordered("value", "value_ms", len(values), places, sample)
    found = values_at(made, "from v_x", [asked], {})
    made.close()
    assert found["value"] == pytest.approx(np.quantile(values, shares).tolist(), rel=1e-15)


def test_requests_with_one_latency_count_for_the_same_part(tmp_path: Path) -> None:
    """All take 1,000 ms, half of them in the queue: so do those around any percentile, whatever their order."""
    con = store()
    queue = np.where(np.arange(400) < 200, 800.0, 0.0)
    rest = {
        f"{name}_ms": 0.0
        for name in ("network", "retrieval", "prompt", "guardrail", "prefill", "post")
    }
    insert(con, requests(400, **rest, queue_ms=queue, decode_ms=1_000.0 - queue))
    path = tmp_path / "requests.parquet"
    fetch_frame(con, query("export_requests"), {"start": None, "end": None}).write_parquet(path)
    made = measure(DuckDb({"v_requests": [str(path)]}), Window(), parse_slo("e2el:2500"))
    [tail] = [row for row in made.paths[-1].stages if row.stage == "queue"]
    assert tail.tail_ms == tail.typical_ms == pytest.approx(400.0)
    assert made.paths[-1].gap_ms == pytest.approx(0.0)


def asked_of(**given: str) -> Question:
    return Question.read(given, Settings(), now=at(N / 10))


def test_two_periods_are_compared(folder: Path, con: duckdb.DuckDBPyConnection) -> None:
    texts = {"slo": "e2el:2500", "since": "200s", "baseline": "previous"}
    made = report(folder, asked_of(**texts), On())
    assert made.before is not None
    assert (made.before.requests, made.period.requests) == (2_000, 2_000)
    sides = [
        of_report(con, Window(start=at(s), end=at(s + 200.0)), "e2el:2500") for s in (0.0, 200.0)
    ]
    [p99] = [one for one in made.changes if (one.metric, one.percentile) == ("e2e", 99.0)]
    assert (p99.before_ms, p99.after_ms) == pytest.approx(
        [side.latency.e2e_ms.p99 for side in sides]
    )
    assert p99.apart
    assert p99.difference_ms > 1_000.0
    ratios = [side.goodput.ratio or 0.0 for side in sides]
    assert made.goodput_difference == pytest.approx(ratios[1] - ratios[0])
    assert made.stages[0].stage == "retrieval"
    text = render(made)
    assert "retrieval" in text
    assert "within chance" in text


def test_a_sampler_that_chooses_by_outcome_is_refused(tmp_path: Path) -> None:
    for name, column in (
        ("mark", {"sampling": "tail:slow"}),
        ("weight", {"sample_weight": [1.0, 4.0] * 50}),
    ):
        con = store()
        insert(con, requests(100, **column))
        path = tmp_path / f"{name}.parquet"
        fetch_frame(con, query("export_requests"), {"start": None, "end": None}).write_parquet(path)
        with pytest.raises(NotForAll, match="do not stand for all"):
            measure(DuckDb({"v_requests": [str(path)]}), Window(), parse_slo("chat"))


def test_a_training_set_has_the_calls_of_an_export(
    folder: Path, con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    out = tmp_path / "calls.parquet"
    rows = export_training(folder, Window(workload="all"), 10**6, out, On())
    exported = fetch_frame(con, query("export_llm_calls"), {"start": None, "end": None})
    expected = from_llm_calls(exported)
    found = load_traces([(out, None)])
    assert rows == found.height == expected.height
    keys = ["time", "input_tokens", "output_tokens"]
    assert found.sort(keys).equals(expected.sort(keys), null_equal=True)
    assert export_training(folder, Window(workload="all"), 10, out, On()) == 10
    assert load_traces([(out, None)])["time"].min() >= expected["time"].sort()[-10]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"from": "2030-01-01T00:00:00Z"}, "no requests of that period"),
        ({"baseline": "previous"}, "--baseline previous needs a period"),
        ({"route": "/none"}, "no complete request"),
        ({"slo": "ttft_p95:100 ttft_p99:200"}, "several percentiles"),
    ],
)
def test_what_cannot_be_answered_names_its_remedy(
    folder: Path, given: dict[str, str], words: str
) -> None:
    with pytest.raises(AnalysisError, match=words):
        report(folder, asked_of(**given), On())


@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing", None])
def test_a_file_that_cannot_be_read_is_named(
    folder: Path, tmp_path: Path, content: bytes | None
) -> None:
    """One that is cut short, or (None) files of another program."""
    where = tmp_path / f"requests/hour={T0:%Y-%m-%dT%H}/shard=it's"
    where.mkdir(parents=True)
    path = where / "requests.parquet"
    if content is None:
        pl.DataFrame({"a": [1]}).write_parquet(path)
    else:
        path.write_bytes(content)
    with pytest.raises(Unreadable, match="write its hour again"):
        report(tmp_path, asked_of(), On())


def test_a_folder_of_no_hour_is_passed_over(folder: Path, tmp_path: Path) -> None:
    [first, *_] = folder.glob("requests/*/*/*")
    for hour in ("2026-99-99T99", f"{T0:%Y-%m-%dT%H}"):
        path = tmp_path / f"requests/hour={hour}/shard=it's/requests.parquet"
        path.parent.mkdir(parents=True)
        shutil.copy(first, path)
    assert report(tmp_path, asked_of(), On()).period.requests > 0
    assert hourly(tmp_path, "requests") == [str(path)]


def test_a_training_set_that_fails_leaves_the_one_before(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "calls.parquet"
    out.write_bytes(b"before")

    def failing(*_: Any) -> Any:
        raise duckdb.IOException("cut short")

    monkeypatch.setattr(engines.pq.ParquetWriter, "write_batch", failing)
    with pytest.raises(Unreadable, match="cut short"):
        export_training(folder, Window(), 10, out, On())
    assert out.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [out]


def test_engines_that_are_not_there_are_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    with pytest.raises(NoEngine, match=re.escape("pip install 'overrun[spark]'")):
        report(folder, asked_of(), On("spark"))
    with pytest.raises(NoEngine, match="duckdb or spark"):
        report(folder, asked_of(), On("presto"))
    with pytest.raises(AnalysisError, match="overrun store export requests --folder"):
        report(tmp_path, asked_of(), On())


def test_spark_gets_the_same_queries_without_duckdb_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every text that DuckDB is asked, as Spark would get it. `make bench-spark` runs them on a cluster."""
    seen: list[str] = []
    frame = DuckDb.frame

    def kept(self: DuckDb, sql: str, parameters: Any) -> pl.DataFrame:
        seen.append(in_spark(sql))
        return frame(self, sql, parameters)

    monkeypatch.setattr(DuckDb, "frame", kept)
    report(folder, asked_of(since="200s", baseline="previous"), On())
    texts = [*seen, in_spark(query("training_calls")), *engines.functions()]
    assert len(texts) > 20
    for text in texts:
        code = re.sub(r"--[^\n]*", "", text)
        assert not re.search(
            r"\$|\[|::(?!bigint|double)|\bvarchar\b|timestamptz|quantile_cont", code
        )
    made = "\n".join(engines.functions())
    assert "asked_for(start_ns bigint, service string" in made
    assert "first timestamp, until timestamp" in made
