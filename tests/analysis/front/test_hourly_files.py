"""Closed hours as files: each once, again when it has changed, never worse than it was, and read by other tools in three lines."""

import re
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from overrun import cli
from overrun.analysis.front import hourly_files
from overrun.analysis.front.asked import Source
from overrun.analysis.front.commands import HoursOfFile
from overrun.analysis.front.export import BadExport
from overrun.analysis.front.held_hours import HeldHours, Hour
from overrun.analysis.front.hourly_files import HourlyFiles, Round
from overrun.analysis.words.times import rfc3339
from overrun.collector.config import RetentionSettings, Settings
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import METRICS, TRACES
from overrun.collector.lifecycle.forget import forget
from overrun.collector.lifecycle.retention import DAY_NS, Retention
from tests.collector.conftest import T0_NS, body, chat, opened, span
from tests.collector.normalise.test_points import counter, gauge, request
from tests.conftest import ROOT, StartServer

HOUR_MS = 3_600_000.0
T0 = datetime.fromtimestamp(T0_NS / 1e9, UTC)  # 2026-09-21, 14:13:20
FIRST, SECOND = T0.strftime("%Y-%m-%dT%H"), (T0 + timedelta(hours=1)).strftime("%Y-%m-%dT%H")
LATER = T0 + timedelta(hours=6)
READINGS = {
    lines.split()[1]: lines
    for lines in re.findall(
        r"```python\n(import (?:duckdb|polars|pandas).*?)```",
        (ROOT / "docs/SCALE.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
}
SENT = ("requests", "llm-calls", "spans")


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with opened(tmp_path / "t.db") as made:
        yield made


def send(pipeline: Pipeline, trace: int, *, hour: int = 0, user: str = "") -> None:
    """One request in an hour after T0, in a commit of its own."""
    root, call = chat(trace, start_ms=hour * HOUR_MS)
    if user:
        root.attributes.add(key="user.id").value.string_value = user
    pipeline.writer.submit(TRACES, body([root, call])).result(120)
    pipeline.drain()


def write(
    pipeline: Pipeline,
    files: HourlyFiles,
    *kinds: str,
    now: datetime = LATER,
    **window: str,
) -> Round:
    store = HoursOfFile(pipeline.store, Settings())
    return files.write(store, kinds or ("requests",), window, now)


def parts(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(".lock")
    }


def names_of(folder: Path, kind: str = "requests") -> list[str]:
    return sorted(path.name for path in (folder / kind).iterdir())


def test_each_hour_is_written_once_and_again_only_when_its_rows_have_changed(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    files = HourlyFiles(tmp_path / "out", "a")
    for trace, hour in ((1, 0), (2, 0), (3, 1)):
        send(pipeline, trace, hour=hour)
    assert write(pipeline, files, *SENT) == Round(new=6)
    before = parts(files.folder)
    assert sorted(before) == sorted(
        f"{kind}/hour={hour}/shard=a/{kind}.parquet" for kind in SENT for hour in (FIRST, SECOND)
    )
    for again in (files, HourlyFiles(files.folder, "a")):  # this process, and the next one
        assert write(pipeline, again, *SENT) == Round(unchanged=6)
    late = span(2, 7, 1, name="late", start_ms=5)
    pipeline.writer.submit(TRACES, body([late])).result(120)
    pipeline.drain()
    assert write(pipeline, files, *SENT) == Round(again=3, unchanged=3)
    after = parts(files.folder)
    assert {name for name in after if after[name] != before[name]} == {
        name for name in before if FIRST in name
    }
    frame = pl.read_parquet(files.folder / "requests" / f"hour={FIRST}" / "shard=a" / "*.parquet")
    assert sorted(frame["spans"].to_list()) == [2, 3]


def test_the_rows_of_all_hours_together_are_those_of_the_view(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    for trace in range(1, 9):
        send(pipeline, trace, hour=trace // 3)
    samples = [(0, s, float(s)) for s in range(0, 9000, 60)]
    counted = counter("vllm:generation_tokens_total", samples)
    pipeline.writer.submit(METRICS, request(gauge("vllm:num_requests_waiting", 3.0), counted)).result(120)  # fmt: skip
    kinds = (*hourly_files.KINDS, "prompts")
    files = HourlyFiles(tmp_path / "out")
    write(pipeline, files, *kinds)
    views = {"requests": "v_requests", "llm-calls": "v_llm_calls", "spans": "v_spans"}
    with pipeline.store.reading() as con:
        for kind, view in (views | {"metrics": "v_metric_points"}).items():
            [(rows,)] = con.execute(f"select count(*) from {view}").fetchall()
            found = [
                pq.read_metadata(path).num_rows for path in files.folder.rglob(f"{kind}.parquet")
            ]
            assert (sum(found), 0 in found) == (rows, False)
    prompts = [pq.read_metadata(path).num_rows for path in files.folder.rglob("prompts.parquet")]
    assert prompts == [0, 0, 0]


def test_an_hour_is_closed_a_quarter_of_an_hour_after_its_end(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    send(pipeline, 1)
    files = HourlyFiles(tmp_path / "out")
    end = T0.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    assert write(pipeline, files, now=end + timedelta(minutes=14)) == Round()
    assert write(pipeline, files, now=end + timedelta(minutes=15)) == Round(new=1)


def test_a_window_takes_whole_hours_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    for hour in range(3):
        send(pipeline, hour + 1, hour=hour)
    files = HourlyFiles(tmp_path / "out")
    inside = {"from": rfc3339(T0), "to": rfc3339(T0 + timedelta(hours=2))}
    assert write(pipeline, files, **inside) == Round(new=1)
    assert names_of(files.folder) == [f"hour={SECOND}"]
    assert write(pipeline, files, since="15m") == Round()


def test_a_late_sample_changes_the_next_hour_only_from_the_last_quarter_of_its_own(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """A counter's first rate of an hour comes from the sample before it."""

    def count(*samples: int) -> None:
        sent = counter("vllm:generation_tokens_total", [(0, s, float(s)) for s in samples])
        pipeline.writer.submit(METRICS, request(sent)).result(120)

    files = HourlyFiles(tmp_path / "out")
    to_end = 3600 - T0_NS // 10**9 % 3600
    count(1, to_end + 60, to_end + 120)
    assert write(pipeline, files, "metrics") == Round(new=2)
    count(2)
    assert write(pipeline, files, "metrics") == Round(again=1, unchanged=1)
    count(to_end - 60)
    assert write(pipeline, files, "metrics") == Round(again=2)


def expire(pipeline: Pipeline, through: int) -> None:
    """Let retention go of the commits up to one."""
    aged = f"update batches set received_ns = received_ns - {9 * DAY_NS} where batch <= {through}"
    pipeline.writer.call(lambda c: c.execute(aged)).result()
    with pipeline.store.asking() as cursor:
        [(now_ns,)] = cursor.execute("select max(received_ns) from batches").fetchall()
    settings = RetentionSettings(max_age_days=7.0, db_max_size="0")
    assert Retention(pipeline.store, pipeline.writer, settings).round(now_ns).batches


def test_what_retention_has_let_go_of_stays_as_it_was_exported(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    files = HourlyFiles(tmp_path / "out")
    send(pipeline, 1)
    oldest = pipeline.writer.last_batch
    send(pipeline, 2)
    send(pipeline, 3, hour=1)
    write(pipeline, files, *SENT)
    before = parts(files.folder)
    expire(pipeline, oldest)
    send(pipeline, 4)
    assert write(pipeline, files, *SENT) == Round(kept=3, unchanged=3)
    expire(pipeline, pipeline.writer.last_batch - 1)
    assert write(pipeline, files, *SENT) == Round(kept=3)
    send(pipeline, 5, hour=2)
    assert write(pipeline, files, *SENT) == Round(kept=3, new=3)
    assert {name: kept for name, kept in parts(files.folder).items() if name in before} == before


def test_what_retention_lets_go_of_during_a_round_stays_as_it_was_exported(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    files = HourlyFiles(tmp_path / "out")
    send(pipeline, 1)
    oldest = pipeline.writer.last_batch
    send(pipeline, 2)
    write(pipeline, files)
    before = parts(files.folder)
    send(pipeline, 3)

    class Expiring(HoursOfFile):
        def save(self, kind: str, start: str, end: str, out: IO[bytes]) -> None:
            expire(pipeline, oldest)
            super().save(kind, start, end, out)

    store = Expiring(pipeline.store, Settings())
    assert files.write(store, ("requests",), {}, LATER) == Round(kept=1)
    assert parts(files.folder) == before


def test_who_is_erased_goes_from_the_files_of_held_hours(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    files = HourlyFiles(tmp_path / "out")
    send(pipeline, 1, user="ada")
    send(pipeline, 2, user="bob")
    send(pipeline, 3, hour=1, user="ada")
    write(pipeline, files, *SENT)
    pipeline.between_rounds(lambda c: forget(c, pipeline.store.salt(), user="ada"))
    assert write(pipeline, files, *SENT) == Round(again=6)
    for kind, left in (("requests", 1), ("llm-calls", 1), ("spans", 2)):
        assert pl.read_parquet(files.folder / kind / "**/*.parquet").height == left
    assert write(pipeline, files, *SENT) == Round(unchanged=6)  # the empty hour, too


class Killed(BaseException):
    pass


def test_a_round_that_is_killed_leaves_whole_files_and_the_next_one_goes_on(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = HourlyFiles(tmp_path / "out", "a")
    send(pipeline, 1)
    write(pipeline, files)
    before = parts(files.folder)
    send(pipeline, 2)
    send(pipeline, 3, hour=1)

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:  # between the write and the rename, nothing is tidied up
        patched.setattr(Path, "replace", killed)
        patched.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(Killed):
            write(pipeline, HourlyFiles(files.folder, "a"))
    left = set(parts(files.folder)) - set(before)
    assert left == {f"requests/hour={FIRST}/shard=a/.requests.parquet.part"}
    assert {name: now for name, now in parts(files.folder).items() if name in before} == before
    assert duckdb.sql(f"from '{files.folder}/requests/*/*/*.parquet'").pl().height == 1
    assert write(pipeline, files) == Round(new=1, again=1)
    assert set(parts(files.folder)) - set(before) == {
        f"requests/hour={SECOND}/shard=a/requests.parquet"
    }


def test_the_files_are_their_owners_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    send(pipeline, 1)
    files = HourlyFiles(tmp_path / "out")
    write(pipeline, files)
    modes = {
        stat.S_IMODE(path.stat().st_mode) for path in files.folder.rglob("*") if path.is_file()
    }
    assert modes == {0o600}


def test_a_damaged_file_is_written_again(pipeline: Pipeline, tmp_path: Path) -> None:
    send(pipeline, 1)
    files = HourlyFiles(tmp_path / "out")
    write(pipeline, files)
    [path] = files.folder.rglob("*.parquet")
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert write(pipeline, files) == Round(new=1)
    assert path.read_bytes() == whole


def test_two_stores_need_two_shards_and_have_them_unless_one_is_named(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    with opened(tmp_path / "other.db") as other:
        for store in (pipeline, other):
            send(store, 1)
            assert write(store, HourlyFiles(folder)) == Round(new=1)
        assert len(list(folder.rglob("*.parquet"))) == 2
        assert write(pipeline, HourlyFiles(folder, "one")) == Round(new=1)
        with pytest.raises(BadExport, match="another store"):
            write(other, HourlyFiles(folder, "one"))


def test_a_shard_has_one_writer(pipeline: Pipeline, tmp_path: Path) -> None:
    send(pipeline, 1)
    files = HourlyFiles(tmp_path / "out", "a")
    with hourly_files._Place(files.folder, "requests", "a").locked():
        with pytest.raises(BadExport, match="another process"):
            write(pipeline, files)
        assert write(pipeline, HourlyFiles(files.folder, "b")) == Round(new=1)
    assert write(pipeline, files) == Round(new=1)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a=b", "-a", "ä", "a\n", "a" * 65, "a b"]
)
def test_a_shard_that_is_no_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadExport, match="is no name"):
        HourlyFiles(tmp_path, name)


class Lying(HoursOfFile):
    """A server that answers what it likes."""

    def hours(self, kind: str, start: str | None, end: str) -> HeldHours:
        return HeldHours(**({"store": "x", "first_commit": 1, "since": None, "until": None, "left_out": 0, "hours": []} | self.said))  # type: ignore[attr-defined]  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        {"store": "../../etc"},
        *(
            {"hours": [Hour(hour=hour, rows=1, first_commit=1, mark="1-1")]}
            for hour in (
                "../x",
                "2026-11-26T1",
                "2026-11-26T25",
                "2026-11-26T14/..",
                "２026-11-26T14",
            )
        ),
    ],
    ids=str,
)
def test_what_a_server_says_never_leaves_the_folder(
    pipeline: Pipeline, tmp_path: Path, said: dict[str, Any]
) -> None:
    lying = type("Said", (Lying,), {"said": said, "__slots__": ()})(pipeline.store, Settings())
    with pytest.raises(BadExport):
        HourlyFiles(tmp_path / "out").write(lying, ("requests",), {}, LATER)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("content", [b"", b"PAR1 but no more", b"{}"])
def test_an_answer_that_is_no_file_of_the_hour_takes_no_place(
    pipeline: Pipeline, tmp_path: Path, content: bytes
) -> None:
    class Odd(HoursOfFile):
        def save(self, kind: str, start: str, end: str, out: IO[bytes]) -> None:
            out.write(content)

    send(pipeline, 1)
    files = HourlyFiles(tmp_path / "out")
    with pytest.raises(BadExport):
        files.write(Odd(pipeline.store, Settings()), ("requests",), {}, LATER)
    assert parts(files.folder) == {}


def test_an_unknown_kind_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    with pytest.raises(BadExport, match="not exported"):
        write(pipeline, HourlyFiles(tmp_path / "out"), "../requests")
    assert not (tmp_path / "out").exists()


def test_more_hours_than_are_listed_leave_out_the_oldest(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in range(3):
        send(pipeline, hour + 1, hour=hour)
    files = HourlyFiles(tmp_path / "out")
    write(pipeline, files)
    monkeypatch.setattr("overrun.analysis.front.held_hours.MOST_HOURS", 2)
    assert write(pipeline, files) == Round(unchanged=2, left_out=1)


def test_the_command_writes_the_same_files_through_a_server_and_from_its_file(
    tmp_path: Path, start_server: StartServer
) -> None:
    path, folder = tmp_path / "t.db", tmp_path / "lake"
    with opened(path) as pipeline:
        send(pipeline, 1)
        send(pipeline, 2, hour=1)
    server = start_server(path)
    runner = CliRunner()

    def export(*arguments: object) -> tuple[int, str]:
        done = runner.invoke(
            cli.app, ["store", "export", *map(str, arguments), "--folder", str(folder)]
        )
        return done.exit_code, done.output.splitlines()[0]

    new = "wrote 6 files of new hours and 0 files of hours that had changed; 0 are unchanged"
    assert export("--url", server.http) == (0, new)
    before = parts(folder)
    server.stop()
    same = "wrote 0 files of new hours and 0 files of hours that had changed; 6 are unchanged"
    assert export("--db", path) == (0, same)
    assert parts(folder) == before
    for refused in (["--format", "csv"], ["--out", "x"], ["--shard", ".."]):
        assert export("--db", path, *refused)[0] == 2
    for refused in ([], ["requests", "--continuous"], ["requests", "--shard", "a"]):
        assert (
            runner.invoke(cli.app, ["store", "export", *refused, "--db", str(path)]).exit_code == 2
        )


def test_a_continuous_export_outlives_rounds_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.db"
    with opened(path) as pipeline:
        send(pipeline, 1)
    folder = tmp_path / "lake"
    folder.write_text("in the way")
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if folder.is_file():
            folder.unlink()
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli, "time", SimpleNamespace(sleep=wait))
    source = Source(Settings(), path, None)
    with pytest.raises(KeyboardInterrupt):
        cli._export_hours(source, folder, "a", "requests", {}, continuous=True)
    said = capsys.readouterr()
    assert (len(waited), said.err.count("trying again"), said.out.count("\n")) == (3, 1, 1)
    assert said.out.startswith("wrote 1 file of new hours")


def test_duckdb_polars_and_pandas_read_it_in_three_lines(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of docs/SCALE.md, as they stand there."""
    for trace, hour in ((1, 0), (2, 0), (3, 1)):
        send(pipeline, trace, hour=hour)
    write(pipeline, HourlyFiles(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    found: dict[str, list[tuple[str, float]]] = {}
    for library, lines in READINGS.items():
        known: dict[str, Any] = {}
        exec(lines, known)
        assert lines.count("\n") == 3
        found[library] = sorted(map(tuple, rows_of(known["p95"])))
    wanted = [(FIRST, 100.0), (SECOND, 100.0)]
    assert found == {"duckdb": wanted, "polars": wanted, "pandas": wanted}


def rows_of(answer: Any) -> Any:
    if isinstance(answer, pl.DataFrame):
        return answer.rows()
    return answer.items() if isinstance(answer, pd.Series) else answer.fetchall()
