"""The schema as a contract: every query fits it, the views have the promised columns, and codes mean the same in SQL and Python."""

import re
import time
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from overrun.analysis.assembly import critical_path
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import TRACES
from overrun.collector.normalise import stages
from overrun.collector.normalise.metric_names import _all_metrics
from overrun.collector.store.database import open_store
from tests import programs
from tests.collector.conftest import T0_NS, body, chat, one, rows, trace_id

ROOT = Path(__file__).parents[3]
PACKAGES = ("collector", "analysis", "models", "dashboard")
QUERIES = sorted(
    p for package in PACKAGES for p in (ROOT / package).rglob("*.sql") if p.parent.name == "sql"
)
# The type of a column by its kind in the file; other kinds are types.
KINDS = {
    "text": {"VARCHAR"},
    "time": {"TIMESTAMP WITH TIME ZONE"},
    "ms": {"DOUBLE"},
    "count": {"BIGINT", "INTEGER"},
    "flag": {"BOOLEAN"},
}
PROMISED: dict[str, dict[str, set[str]]] = {
    view: {name: KINDS.get(kind, {kind}) for kind, names in of.items() for name in names}
    for view, of in tomllib.loads((Path(__file__).parent / "promised.toml").read_text()).items()
}


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    store = open_store(tmp_path_factory.mktemp("schema") / "t.db", create=True)
    yield store.connection
    store.close()


# --- queries ---


@pytest.mark.parametrize("path", QUERIES, ids=lambda p: f"{p.parent.parent.name}/{p.stem}")
def test_every_query_prepares_against_the_current_schema(
    con: duckdb.DuckDBPyConnection, path: Path
) -> None:
    text = path.read_text()
    needed = {
        name: f"create temp table {name} (trace_hi ubigint, trace_lo ubigint)"
        for name in ("wanted", "fresh")
    }
    needed["doubled"] = (
        "create temp table doubled (source_id ubigint, service varchar, place varchar, scope_name varchar)"
    )
    needed["wrapped"] = "create temp table wrapped (scope_name varchar, span_name varchar)"
    needed["mine"] = "create temp table mine (seq bigint, response_id varchar)"
    for name, ddl in needed.items():
        if re.search(rf"\b{name}\b", text):
            con.execute(ddl.replace("create temp table", "create or replace temp table"))
    [statement] = con.extract_statements(text)
    con.execute(f"prepare checked as {statement.query}")
    con.execute("deallocate checked")


def test_every_query_file_has_a_caller_and_every_call_a_file() -> None:
    for package in PACKAGES:
        files = {p.stem for p in (ROOT / package).rglob("*.sql") if p.parent.name == "sql"}
        sources = "\n".join(p.read_text() for p in (ROOT / package).rglob("*.py"))
        called = set(re.findall(r"""\bsql\(\s*["'](\w+)["']""", sources)) | set(
            re.findall(r"""["'](\w+)\.sql["']""", sources)
        )
        orphans = {
            name for name in files - called if not re.search(rf"""["']{name}["']""", sources)
        }
        assert not orphans, f"{package}/sql has files that nothing reads"
        if package == "collector":
            there = {p.stem for p in (ROOT / package).rglob("*.sql")}
            assert called <= there, f"{package} asks for files that are not there"


@pytest.mark.parametrize(
    "path",
    [*QUERIES, *sorted((ROOT / "collector" / "store" / "views").glob("*.sql"))],
    ids=lambda p: p.stem,
)
def test_every_query_and_view_says_first_what_one_row_is_for(path: Path) -> None:
    assert path.read_text().startswith("-- ")


# --- views ---


@pytest.mark.parametrize("view", PROMISED)
def test_a_view_has_the_columns_that_it_promises(con: duckdb.DuckDBPyConnection, view: str) -> None:
    found = dict(
        con.execute(
            "select column_name, data_type from duckdb_columns() where table_name = ?", [view]
        ).fetchall()
    )
    missing = PROMISED[view].keys() - found.keys()
    assert not missing
    assert {c: found[c] for c, types in PROMISED[view].items() if found[c] not in types} == {}


def test_stage_times_of_the_view_sum_to_e2e(pipeline: Pipeline) -> None:
    pipeline.writer.submit(
        TRACES, body([s for i in range(1, 30) for s in chat(i, ms=50 + i * 7.3)])
    ).result(30)
    pipeline.drain()
    parts = " + ".join(f"{s}_ms" for s in stages.STAGES if s != "wait_user")
    assert one(pipeline, "select count(*) from v_requests") == 29
    assert rows(pipeline, f"select * from v_requests where abs({parts} - e2e_ms) > 1e-6") == []


# --- macros ---


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_ids_are_printed_as_w3c_hex(con: duckdb.DuckDBPyConnection, high: int, low: int) -> None:
    assert con.execute(
        f"select trace_hex({high}::ubigint, {low}::ubigint), span_hex({low}::ubigint)"
    ).fetchone() == (f"{high:016x}{low:016x}", f"{low:016x}")


@pytest.mark.parametrize(
    ("macro", "names"),
    [
        ("stage_name", stages.STAGES),
        ("role_name", stages.ROLES),
        ("span_kind_name", ("unspecified", "internal", "server", "client", "producer", "consumer")),
        ("ttft_source_name", ("none", "attribute", "event", "engine", "events_dropped")),
    ],
)
def test_codes_mean_the_same_in_sql_and_in_python(
    con: duckdb.DuckDBPyConnection, macro: str, names: tuple[str, ...]
) -> None:
    found = [
        row[0]
        for row in con.execute(
            f"select {macro}(i) from range({len(names) + 1}) r(i) order by i"
        ).fetchall()
    ]
    assert found == [*names, None]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"first": 2},
        {"until": 3},
        {"first": 1, "until": 2, "service": "a"},
        {"model": "m"},
        {"instance": "1"},
        {"without": ["batch", "eval"]},
        {"route": "r", "tenant": "t"},
        {"workload": "batch"},
    ],
)
def test_rows_that_are_asked_for_pass_every_filter_that_is_set(
    con: duckdb.DuckDBPyConnection, asked: dict[str, Any]
) -> None:
    made = [
        (minute, s, i, m, r, t, w)
        for minute in range(4)
        for s, i, m, r, t in (("a", "1", "m", "r", "t"), ("b", None, None, "r", None))
        for w in ("chat", "batch")
    ]
    names = ("service", "instance", "model", "route", "tenant", "workload")
    expected = [
        row
        for row in made
        if asked.get("first", 0) <= row[0] < asked.get("until", 9)
        and row[6] not in asked.get("without", [])
        and all(
            name not in asked or asked[name] == value
            for name, value in zip(names, row[1:], strict=True)
        )
    ]
    moments = {
        side: datetime(2026, 1, 1, 0, asked[side], tzinfo=UTC) if side in asked else None
        for side in ("first", "until")
    }
    values = (
        moments | {name: asked.get(name) for name in names} | {"without": asked.get("without", [])}
    )
    relation = ", ".join(str(row).replace("None", "null") for row in made)
    passed = con.execute(
        f"""select * from (values {relation}) v(minute, service, instance, model, route, tenant, workload)
        where asked_for(epoch_ns(timestamptz '2026-01-01 00:00:00+00' + to_minutes(minute)), service, instance, model, route, tenant, workload,
            $first, $until, $service, $instance, $model, $route, $tenant, $workload, $without)""",
        values,
    ).fetchall()
    assert passed == expected


def test_the_critical_path_counts_with_the_same_codes() -> None:
    assert len(stages.STAGES) == critical_path.STAGES
    for name, code in stages.STAGE.items():
        assert getattr(critical_path, name.upper()) == code
    for name, code in stages.ROLE.items():
        assert getattr(critical_path, name.upper()) == code


def test_every_indicator_of_the_tables_has_a_unit(con: duckdb.DuckDBPyConnection) -> None:
    indicators = sorted({metric.indicator for metric in _all_metrics()})
    units = {i: con.execute("select indicator_unit($i)", {"i": i}).fetchone() for i in indicators}
    assert {i for i, unit in units.items() if unit == ("1",)} == set()


# --- settings ---


def test_settings_hold_on_a_cursor(con: duckdb.DuckDBPyConnection) -> None:
    cursor = con.cursor()
    found = cursor.execute(
        "select current_setting('asof_loop_join_threshold'), current_setting('TimeZone'), current_setting('autoinstall_known_extensions')"
    ).fetchone()
    cursor.close()
    assert found == (0, "UTC", False)


def test_the_views_say_utc_whatever_zone_the_machine_is_in(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from overrun.collector.ingest.writer import TRACES
from tests.collector.conftest import body, chat, opened, rows
with opened(Path({str(tmp_path)!r}) / "t.db") as pipeline:
    pipeline.writer.submit(TRACES, body(chat(1))).result(30)
    pipeline.drain()
    [(start, text, hour)] = rows(pipeline, "select start, start::varchar, hour(start) from v_requests")
    print(start.isoformat(), text, hour)
"""
    done = programs.fresh(code, TZ="Asia/Kolkata")
    assert done.returncode == 0, done.stderr
    at = time.gmtime(T0_NS // 10**9)
    clock = time.strftime("%H:%M:%S", at)
    assert (
        done.stdout.strip()
        == f"{time.strftime('%Y-%m-%d', at)}T{clock}+00:00 {time.strftime('%Y-%m-%d', at)} {clock}+00 {at.tm_hour}"
    )


def test_a_trace_id_of_the_view_is_the_one_that_was_sent(pipeline: Pipeline) -> None:
    pipeline.writer.submit(TRACES, body(chat(7))).result(30)
    assert rows(pipeline, "select distinct trace_id from v_spans") == [(trace_id(7).hex(),)]
