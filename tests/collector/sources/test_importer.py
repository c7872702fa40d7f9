"""Files take the same road as live traffic, in every form; one that is not OTLP is refused by name; one that comes twice counts once."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overrun.analysis.front import file_import
from overrun.analysis.front.client import Unreachable
from overrun.analysis.front.file_import import import_files
from overrun.collector.config import load
from overrun.collector.errors import ImportFailed, StoreLocked, StoreUnavailable
from overrun.collector.sources.importer import find_files, load_test_of, read_bodies
from overrun.collector.store.database import open_store, server_url
from overrun.sample_traces.replay import RECORDINGS_PATH
from tests.collector.conftest import T0_NS, body, chat, trace_id
from tests.conftest import StartServer


def metrics() -> bytes:
    sent = ExportMetricsServiceRequest()
    sent.resource_metrics.add().scope_metrics.add().metrics.add(name="m").gauge.data_points.add(
        time_unix_nano=T0_NS, as_double=1.0
    )
    return sent.SerializeToString()


def logs() -> bytes:
    sent = ExportLogsServiceRequest()
    sent.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "x"
    return sent.SerializeToString()


def document(trace: int) -> dict[str, object]:
    ids = {
        "traceId": trace_id(trace).hex(),
        "spanId": "0000000000000001",
        "name": "chat",
        "startTimeUnixNano": "1790000000000000000",
        "endTimeUnixNano": "1790000001000000000",
    }
    return {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                **ids,
                                "attributes": [
                                    {
                                        "key": "gen_ai.operation.name",
                                        "value": {"stringValue": "chat"},
                                    }
                                ],
                            }
                        ]
                    }
                ]
            }
        ]
    }


FORMS: dict[str, Callable[[], bytes]] = {
    "a.pb": lambda: body(chat(1)),
    "a.traces.pb": lambda: body(chat(1)),
    "a.json": lambda: json.dumps(document(1)).encode(),
    "list.json": lambda: json.dumps([document(1)]).encode(),
    "a.jsonl": lambda: json.dumps(document(1)).encode() + b"\n",
    "blank.jsonl": lambda: b"\n" + json.dumps(document(1)).encode() + b"\n\n",
    "indented.json": lambda: json.dumps(document(1), indent=2).encode(),
}


def imported(db: Path, *paths: Path, url: str | None = None) -> str:
    return import_files(
        list(paths),
        load(None, environment={}, flags={"collector.db": str(db)}),
        url=url,
        progress=lambda at, total: None,
    )


def count(db: Path, query: str = "select count(*) from v_requests") -> int:
    store = open_store(db, create=False)
    try:
        return int(store.connection.execute(query).fetchall()[0][0])
    finally:
        store.close()


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_file_is_read(tmp_path: Path, name: str, compression: str) -> None:
    pack: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".gz": gzip.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }
    path = tmp_path / (name + compression)
    path.write_bytes(pack[compression](FORMS[name]()))
    [(signal, content)] = read_bodies(path)
    assert (signal, trace_id(1) in content) == ("traces", True)


def test_a_large_zstd_file_of_several_frames_is_read_whole(tmp_path: Path) -> None:
    lines = [json.dumps(document(i)).encode() + b"\n" for i in range(1, 2_000)]
    half = (
        zstandard.ZstdCompressor().compress(b"".join(lines[:1_000])),
        zstandard.ZstdCompressor().compress(b"".join(lines[1_000:])),
    )
    (tmp_path / "a.jsonl.zst").write_bytes(b"".join(half))
    assert len(list(read_bodies(tmp_path / "a.jsonl.zst"))) == len(lines)


def test_an_import_returns_after_assembly_and_says_what_came_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.pb").write_bytes(body(chat(1)))
    (tmp_path / "b.jsonl").write_text(
        json.dumps(document(2)) + "\n" + json.dumps(document(3)) + "\n"
    )
    (tmp_path / "m.metrics.pb").write_bytes(metrics())
    (tmp_path / "l.logs.pb").write_bytes(logs())
    told = imported(tmp_path / "t.db", *sorted(tmp_path.glob("*.pb")), tmp_path / "b.jsonl")
    assert told.splitlines() == [
        "4 files, 4 OTLP requests; 5 spans and data points stored; 3 requests, 3 calls of models (0 failed, 0 with a first token, 1 with tokens), "
        "1 sample of metrics; 1 OTLP log request left out (not about a call; logs are not stored)",
        "a.pb and 3 more: read as OTLP (its messages)",
    ]
    assert count(tmp_path / "t.db") == 3


def test_a_file_imported_twice_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a.pb").write_bytes(body(chat(1)))
    shutil.copy(tmp_path / "a.pb", tmp_path / "copy.pb")
    assert "1 were already stored" in imported(
        tmp_path / "t.db", tmp_path / "a.pb", tmp_path / "copy.pb"
    )
    assert "1 were already stored" in imported(tmp_path / "t.db", tmp_path / "a.pb")
    assert count(tmp_path / "t.db", "select count(*) from spans") == 2


def test_a_full_disk_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: Future[object] = Future()
    refused.set_exception(
        StoreUnavailable(
            'the store refused it: Could not write "t.db.wal": No space left on device'
        )
    )
    monkeypatch.setattr(file_import, "submit", lambda *_: refused)
    with pytest.raises(ImportFailed, match=r"No space left on device\. Free some space .* again"):
        imported(tmp_path / "t.db", RECORDINGS_PATH / "vllm-joined")


def test_a_folder_is_searched_and_what_else_lies_there_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "a.traces.pb.zst").write_bytes(
        zstandard.ZstdCompressor().compress(body(chat(1)))
    )
    (tmp_path / "deep" / "b.json").write_text(json.dumps(document(2)))
    (tmp_path / "notes.txt").write_text("not mine")
    assert [p.name for p in find_files([tmp_path])] == ["b.json", "a.traces.pb.zst"]


def test_a_recorded_folder_is_the_same_as_the_traffic(tmp_path: Path) -> None:
    told = imported(tmp_path / "t.db", RECORDINGS_PATH / "vllm-joined")
    assert told.startswith(
        "2 files, 2 OTLP requests; 60 spans and data points stored; 20 requests, 20 calls of models (0 failed, 20 with a first token, 20 with tokens)"
    )
    assert count(tmp_path / "t.db") == 20


def test_through_a_server_it_is_the_same(tmp_path: Path, start_server: StartServer) -> None:
    server = start_server(tmp_path / "t.db")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.json").write_text(json.dumps(document(1)))
    (tmp_path / "files" / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps(document(2)).encode()))
    (tmp_path / "files" / "l.logs.pb").write_bytes(logs())
    for _ in range(2):
        assert imported(
            tmp_path / "unused.db", tmp_path / "files", url=server.http + "/"
        ).startswith("3 files, 2 OTLP requests")
    (tmp_path / "bad.traces.pb").write_bytes(b"garbage")
    with pytest.raises(ImportFailed, match=r"bad\.traces\.pb cannot be read"):
        imported(tmp_path / "unused.db", tmp_path / "bad.traces.pb", url=server.http)
    with pytest.raises(StoreLocked, match=rf"is open in another process.*--url {server.http}$"):
        imported(tmp_path / "t.db", tmp_path / "files")
    assert server_url(tmp_path / "t.db") == server.http
    server.stop()
    assert server_url(tmp_path / "t.db") is None
    assert not (tmp_path / "unused.db").exists()
    assert count(tmp_path / "t.db") == 2
    with pytest.raises(Unreachable, match="cannot be reached"):
        imported(tmp_path / "unused.db", tmp_path / "files", url=server.http)


CUT = gzip.compress(body(chat(1)) * 50)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.pb", b"just some text, no protobuf"),
        ("text.traces.pb", b"\x00\x01"),
        ("empty.pb", b""),
        ("swapped.metrics.pb", body(chat(1))),
        ("swapped.traces.pb", metrics()),
        ("text.json", b"hello"),
        ("empty.json", b""),
        ("other.json", b'{"a": 1}'),
        ("number.json", b"5"),
        ("list.json", b"[1]"),
        ("wrong.json", b'{"resourceSpans": 5}'),
        ("bad.jsonl", json.dumps(document(1)).encode() + b"\n{oops\n"),
        ("latin.json", b'{"a": "\xe9"}'),
        ("plain.json.gz", b"{}"),
        ("plain.pb.zst", b"no zstd"),
        (
            "cut.jsonl.zst",
            zstandard.ZstdCompressor().compress(
                b"".join(json.dumps(document(i)).encode() + b"\n" for i in range(1, 2_000))
            )[:-20],
        ),
        ("cut.pb.gz", CUT[: len(CUT) // 2]),
        ("cut.pb.zst", zstandard.ZstdCompressor().compress(body(chat(1)) * 50)[:-20]),
    ],
)
def test_a_file_that_is_not_otlp_is_refused_by_name(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ImportFailed, match=rf"{name}.*(is not OTLP|cannot be read|is empty)"):
        list(read_bodies(path))


def test_what_came_before_a_bad_file_is_stored(tmp_path: Path) -> None:
    (tmp_path / "a.pb").write_bytes(body(chat(1)))
    (tmp_path / "b.pb").write_bytes(b"garbage")
    with pytest.raises(ImportFailed, match=r"b\.pb"):
        imported(tmp_path / "t.db", tmp_path / "a.pb", tmp_path / "b.pb")
    assert count(tmp_path / "t.db") == 1


def test_paths_that_hold_nothing_to_import_are_named_before_anything_is_touched(
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("x")
    for path, wanted in (
        (tmp_path / "none.pb", "there is nothing at"),
        (tmp_path / "empty", "holds no OTLP file"),
    ):
        with pytest.raises(ImportFailed, match=wanted):
            imported(tmp_path / "t.db", path)
    assert not (tmp_path / "t.db").exists()
    with pytest.raises(ImportFailed, match=r"a\.txt cannot be read.*overrun store map"):
        imported(tmp_path / "t.db", tmp_path / "a.txt")


@pytest.mark.parametrize("packed", [gzip.compress, zstandard.ZstdCompressor().compress, bytes])
@pytest.mark.parametrize(
    "content",
    [
        b'{"resourceSpans": [' + b" " * 5_000_000,  # a line, or a document, without an end
        b"{\n" + b" \n" * 2_500_000,
        b"# HELP a b\n" + b"a 1\n" * 1_250_000,
        b"\x0a" + b"\xff" * 5_000_000,
    ],
    ids=["line", "document", "page", "protobuf"],
)
def test_what_unpacks_to_more_than_is_read_at_once_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packed: Callable[[bytes], bytes],
    content: bytes,
) -> None:
    monkeypatch.setattr("overrun.collector.sources.importer.MAX_DOCUMENT", 4 << 20)
    (tmp_path / "bomb").write_bytes(packed(content))
    with pytest.raises(ImportFailed, match="more than 4 MiB"):
        list(read_bodies(tmp_path / "bomb"))


@pytest.mark.parametrize("end", [b"\n", b""], ids=["line", "document"])
def test_a_document_of_more_values_than_its_file_can_tell_apart_is_refused(
    tmp_path: Path, end: bytes
) -> None:
    """4 kB: two million empty values, each of which takes 200 bytes of memory."""
    values = b"{}," * 1_500_000
    text = b'{"resourceSpans":[' + (b"" if end else b"\n") + values + b"{}]}" + end
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(text))
    with pytest.raises(ImportFailed, match=r"3,000,00\d values at once, expected at most 1,"):
        list(read_bodies(tmp_path / "bomb.json.gz"))


def test_a_parquet_file_of_equal_rows_is_refused_and_a_long_text_is_cut(tmp_path: Path) -> None:
    """A few kB: two million rows, or ten thousand with the same text of 100 kB."""
    rows, texts = tmp_path / "rows.parquet", tmp_path / "texts.parquet"
    for path, n, more in (
        (rows, 2_000_000, {}),
        (texts, 10_000, {"route": pa.array(["x" * 100_000]).dictionary_encode()}),
    ):
        equal = {"time": pa.repeat(pa.scalar(1.79e9), n), "e2e_ms": pa.repeat(pa.scalar(5.0), n)}
        equal |= {name: column.take(pa.repeat(pa.scalar(0), n)) for name, column in more.items()}
        pq.write_table(pa.table(equal), path, compression="zstd")
        assert path.stat().st_size < 50_000
    with pytest.raises(ImportFailed, match="2,000,000 rows in"):
        list(read_bodies(rows))
    test = load_test_of(texts)
    assert test is not None
    assert {request.route for request in test.requests} == {"x" * 200}


def test_a_long_file_of_short_lines_is_read_whatever_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.collector.sources.importer.MAX_DOCUMENT", 1_000)
    line = json.dumps({"resourceSpans": [{"scopeSpans": []}]}) + "\n"
    (tmp_path / "long.jsonl").write_text(line * 200)
    assert len(list(read_bodies(tmp_path / "long.jsonl"))) == 200


def test_what_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    for name, text in (("a.json", "[" * 100_000), ("b.jsonl", '{"a":' * 100_000)):
        (tmp_path / name).write_text(text)
        with pytest.raises(ImportFailed):
            list(read_bodies(tmp_path / name))


RAY = "INFO 2026-11-20 10:00:{at:02},5{at:02} app:gpt worker 200 -- POST /v1/chat/completions {status} {ms}.4ms"


def test_the_status_of_an_access_line_is_a_column_of_all_lines(tmp_path: Path) -> None:
    """Milliseconds behind the comma, and a worker's number, are three digits as well."""
    lines = [RAY.format(at=at, status=429 if at < 3 else 200, ms=2_000 + at) for at in range(20)]
    (tmp_path / "replica.log").write_text("\n".join(lines).replace("INFO", "x INFO"))
    told = imported(tmp_path / "t.db", tmp_path / "replica.log")
    assert "statuses of the access lines: 17 x 200, 3 x 429" in told
    assert count(tmp_path / "t.db", "select count(*) from v_llm_calls where error") == 3


def test_a_log_whose_file_lost_its_date_is_read(tmp_path: Path) -> None:
    path = tmp_path / "syslog"
    path.write_text("Sep 21 14:13:20 h x[1]: POST /v1/chat/completions 200 2.3s\n" * 3)
    os.utime(path, (0, 0))
    imported(tmp_path / "t.db", path)
    assert count(tmp_path / "t.db", "select count(*) from v_llm_calls where start_ns > 1e18") == 3


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([{"trace_id": f"a{n}", "id": n, "start": 1_790_000_000 + n, "duration_ms": 5} for n in range(1, 31)], "none is a request"),
        ([{"note": "x"}] * 3, "neither OTLP"),
    ],
)  # fmt: skip
def test_rows_that_nothing_can_use_are_refused_and_leave_nothing(
    rows: list[dict[str, object]], why: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    with pytest.raises(ImportFailed, match=why):
        imported(tmp_path / "t.db", tmp_path / "rows.json")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"]


def test_a_refused_import_leaves_an_earlier_one_alone(tmp_path: Path) -> None:
    (tmp_path / "a.pb").write_bytes(body(chat(1)))
    (tmp_path / "b.json").write_text("{}")
    imported(tmp_path / "t.db", tmp_path / "a.pb")
    with pytest.raises(ImportFailed):
        imported(tmp_path / "t.db", tmp_path / "b.json")
    assert count(tmp_path / "t.db") == 1
