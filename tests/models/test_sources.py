"""Every vocabulary of traces becomes one table; what cannot be understood is refused by name."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from overrun.models.errors import SourceError
from overrun.models.sources import COLUMNS, from_llm_calls, load_traces
from tests.models.conftest import DATA

AZURE_CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:46.6805900,374,44\n"


def write(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_azures_parquet_is_one_row_a_request_under_the_given_route() -> None:
    frame = load_traces([(DATA / "trace_azure2023_conv.parquet", "conv")])
    assert frame.schema == pl.Schema(COLUMNS)
    assert frame.height == 19_366
    assert frame.row(0, named=True) == dict.fromkeys(COLUMNS) | {
        "time": datetime(2023, 11, 16, 18, 15, 46, 680590, UTC),
        "route": "conv",
        "input_tokens": 374,
        "output_tokens": 44,
    }


def test_several_files_are_merged_in_order_of_time(azure_mixed: pl.DataFrame) -> None:
    assert azure_mixed.height == 19_366 + 8_819
    assert azure_mixed.get_column("time").is_sorted()
    assert azure_mixed.get_column("route").value_counts().sort("route").rows() == [
        ("code", 8_819),
        ("conv", 19_366),
    ]


def test_azures_csv_has_seven_decimals_and_any_order(tmp_path: Path) -> None:
    frame = load_traces([(write(tmp_path / "a.csv", AZURE_CSV), None)])
    assert frame.get_column("time").to_list() == [
        datetime(2023, 11, 16, 18, 15, 46, 680590, UTC),
        datetime(2023, 11, 16, 18, 15, 50, 995169, UTC),
    ]
    assert frame.get_column("output_tokens").to_list() == [44, 109]
    assert frame.get_column("route").to_list() == [None, None]


def test_burstgpts_log_types_are_routes_and_its_failures_are_left_out(tmp_path: Path) -> None:
    lines = [
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "5,12,1.25,ChatGPT,472,18,490,Conversation log",
        "45,,,GPT-4,1087,0,1087,API log",
        "10485760,,8.5,GPT-4,417,276,693,API log",
    ]
    frame = load_traces([(write(tmp_path / "BurstGPT_3.csv", "\n".join(lines)), None)])
    assert frame.select("route", "model", "input_tokens", "output_tokens", "session", "e2e_ms").rows() == [
        ("Conversation log", "ChatGPT", 472, 18, "12", 1_250.0), ("API log", "GPT-4", 417, 276, None, 8_500.0)]  # fmt: skip
    assert [time.timestamp() for time in frame.get_column("time")] == [5.0, 10_485_760.0]


def test_bailians_chats_of_one_root_are_a_session_and_its_times_are_seconds(tmp_path: Path) -> None:
    chats = [
        (159, -1, 61.114, "text"),
        (160, 159, 62.5, "text"),
        (7, 160, 70.0, "search"),
        (8, 55, 71.0, "file"),
        (9, 9, 72.0, "text"),
    ]
    lines = [
        json.dumps(
            {
                "chat_id": chat,
                "parent_chat_id": parent,
                "timestamp": at,
                "input_length": 9,
                "output_length": 5,
                "type": kind,
                "hash_ids": [chat],
            }
        )
        for chat, parent, at, kind in chats
    ]
    frame = load_traces([(write(tmp_path / "qwen_traceA_blksz_16.jsonl", "\n".join(lines)), None)])
    assert frame.get_column("session").to_list() == ["159", "159", "159", "8", "9"]
    assert frame.get_column("route").to_list() == ["text", "text", "search", "file", "text"]
    assert frame.get_column("prefix_hash").to_list() == ["159", "160", "7", "8", "9"]
    assert frame.get_column("time")[0].timestamp() == 61.114


def test_mooncakes_prefix_hash_is_the_first_block_that_tells_requests_apart(tmp_path: Path) -> None:
    blocks = [[0, 1, 2], [0, 7, 9], [0, 1, 3], [0], []]
    lines = [
        json.dumps(
            {"timestamp": 1_500 * number, "input_length": 9, "output_length": 5, "hash_ids": ids}
        )
        for number, ids in enumerate(blocks)
    ]
    frame = load_traces([(write(tmp_path / "m.jsonl.gz", "\n".join(lines)), None)])
    assert frame.get_column("prefix_hash").to_list() == ["1", "7", "1", None, None]
    assert frame.get_column("time").dt.epoch("ms").to_list() == [0, 1_500, 3_000, 4_500, 6_000]


def test_our_own_names_are_read_from_json_lines(tmp_path: Path) -> None:
    row = {
        "time": "2026-01-01T00:00:00.5Z",
        "route": "/chat",
        "model": "m",
        "input_tokens": 1,
        "output_tokens": 2,
        "max_tokens": 3,
        "temperature": 0.5,
        "stream": True,
        "turn": 4,
        "session": "s",
        "tenant": "t",
        "prefix_hash": "p",
        "finish_reason": "stop",
        "e2e_ms": 10.5,
        "prompt": "p q",
        "a column nobody needs": [1],
    }
    text = (
        json.dumps(row)
        + "\n\n"
        + json.dumps(row | {"output_tokens": None, "session": "line\u2028break"})
        + "\n"
    )
    frame = load_traces([(write(tmp_path / "r.jsonl", text), None)])
    assert frame.get_column("output_tokens").to_list() == [2, None]
    frame = frame.head(1)
    row.pop("a column nobody needs")
    assert frame.rows(named=True) == [
        row | {"time": datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC), "prompt_numbers": None}
    ]


def test_a_given_route_replaces_the_files_own(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", "time,route,input_tokens,output_tokens\n1700000000,/a,1,2\n")
    assert load_traces([(path, None)]).get_column("route").to_list() == ["/a"]
    assert load_traces([(path, "/b")]).get_column("route").to_list() == ["/b"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_columns_may_be_parted_by_commas_semicolons_or_tabs(tmp_path: Path, separator: str) -> None:
    path = write(
        tmp_path / "r.csv",
        "time,route,input_tokens,output_tokens\n1700000000,/a,1,2\n".replace(",", separator),
    )
    assert load_traces([(path, None)]).select("route", "input_tokens", "output_tokens").rows() == [
        ("/a", 1, 2)
    ]


def test_dates_are_utc_unless_they_say_otherwise_each_for_itself(tmp_path: Path) -> None:
    dates = (
        "2026-01-31T08:00:00",
        "2026-01-31 08:00:00Z",
        "2026-01-31T10:00:00+0200",
        "2026-01-31T03:00:00.000-05:00",
    )
    path = write(
        tmp_path / "r.csv",
        "time,input_tokens,output_tokens\n" + "".join(f"{date},1,2\n" for date in dates),
    )
    assert set(load_traces([(path, None)]).get_column("time").to_list()) == {
        datetime(2026, 1, 31, 8, tzinfo=UTC)
    }


def test_a_limit_below_one_token_is_none(tmp_path: Path) -> None:
    path = write(
        tmp_path / "r.csv",
        "time,max_tokens,input_tokens,output_tokens\n1,-1,1,2\n2,0,1,2\n3,1,1,2\n",
    )
    assert load_traces([(path, None)]).get_column("max_tokens").to_list() == [None, None, 1]


@pytest.mark.parametrize(
    ("stream", "wanted"), [("True", True), ("false", False), ("1", True), ("", None)]
)
def test_flags_in_csv_are_read(tmp_path: Path, stream: str, wanted: bool | None) -> None:
    path = write(
        tmp_path / "r.csv", f"time,stream,input_tokens,output_tokens\n1700000000,{stream},1,2\n"
    )
    assert load_traces([(path, None)]).get_column("stream").to_list() == [wanted]


def llm_calls() -> pl.DataFrame:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return pl.DataFrame(
        {
            "trace_id": ["a", "b", "c", "d"],
            "start": [start.replace(second=second) for second in (3, 2, 1, 0)],
            "end": [start.replace(second=second + 2) for second in (3, 2, 1, 0)],
            "route": ["/chat"] * 4,
            "model": ["m"] * 4,
            "input_tokens": [10, 20, 30, 40],
            "output_tokens": [1, 2, None, 4],
            "max_tokens": [None, 100, None, None],
            "temperature": [0.0, None, None, None],
            "streaming": [True, False, None, None],
            "session": ["s"] * 4,
            "tenant": [None] * 4,
            "prefix_hash": [None] * 4,
            "turn": [1, 2, 3, 4],
            "finish_reason": ["stop", "length", None, None],
            "error": [False, None, False, True],
            "workload": ["chat"] * 4,
        }
    )


@pytest.mark.parametrize("arrow", [False, True])
def test_the_stores_calls_are_read_without_the_failed_ones(arrow: bool) -> None:
    calls = llm_calls()
    frame = from_llm_calls(calls.to_arrow() if arrow else calls)
    assert frame.schema == pl.Schema(COLUMNS)
    assert frame.get_column("output_tokens").to_list() == [None, 2, 1]
    frame = frame.drop_nulls("output_tokens")
    assert frame.get_column("e2e_ms").to_list() == [2_000.0, 2_000.0]
    assert frame.get_column("stream").to_list() == [False, True]


def test_an_error_column_of_text_marks_failed_calls_too() -> None:
    calls = llm_calls().with_columns(error=pl.Series(["", None, "", "timeout"]))
    assert from_llm_calls(calls).get_column("output_tokens").to_list() == [None, 2, 1]


def test_a_store_without_calls_is_an_empty_table() -> None:
    table = pa.table(
        {"start": pa.array([], pa.timestamp("us", "UTC")), "input_tokens": [], "output_tokens": []}
    )
    assert from_llm_calls(table).schema == pl.Schema(COLUMNS)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "x.csv",
            "when,in,out\n1,2,3\n",
            "has the columns when, in, out; expected one of: ContextTokens",
        ),
        ("x.csv", "", "has the columns (none)"),
        (
            "x.csv",
            "time,input_tokens,ouput_tokens\n1,2,3\n",
            "a column is missing: output_tokens (requests): rename",
        ),
        (
            "x.csv",
            "time,input_tokens,output_tokens,max_token\n1700000000,1,2,3\n",
            "expected 'max_tokens': rename it",
        ),
        ("x.csv", "time,input_tokens,output_tokens\nsoon,1,2\n", "column time is not a time"),
        (
            "x.csv",
            "time,input_tokens,output_tokens\n1700000000,many,2\n",
            "column input_tokens holds String",
        ),
        (
            "x.csv",
            "time,input_tokens,output_tokens\n1700000000,-5,2\n",
            "input_tokens is -5 in some row",
        ),
        (
            "x.csv",
            "time,input_tokens,output_tokens\n1700000000,5,20000000000\n",
            "output_tokens is 20000000000 in some row, expected at most 1000000000",
        ),
        (
            "x.csv",
            "time,input_tokens,output_tokens\n1700000000000,5,2\n",
            "column time holds 1700000000000, expected seconds since 1970: divide milliseconds",
        ),
        ("x.jsonl", '{"time": 1, "input_tokens"\n', "line 1 is not JSON"),
        ("x.jsonl", "{}\n[1]\n", "line 2 holds a list"),
        ("x.jsonl", '{"time": 1}\n{"time": [2]}\n', "mixed types"),
        ("x.parquet", "not parquet", "cannot be read"),
        ("x.txt", "hello", "an unknown suffix, expected .parquet"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(SourceError) as caught:
        load_traces([(path, None)])
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_broken_archive_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        load_traces([(tmp_path / "absent.csv", None)])
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(AZURE_CSV.encode())[:-9])
    with pytest.raises(SourceError, match="cannot be read"):
        load_traces([(tmp_path / "x.csv.gz", None)])
    with pytest.raises(SourceError, match="expected at least one"):
        load_traces([])


def test_files_with_and_without_dates_are_not_mixed() -> None:
    with pytest.raises(SourceError, match=r"two_blocks\.parquet counts time from its start"):
        load_traces(
            [
                (DATA / "trace_azure2023_code.parquet", None),
                (DATA / "trace_mooncake_conversation_two_blocks.parquet", None),
            ]
        )


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-5, 2**70)
    | st.floats()
    | st.sampled_from(["", "x", "2026-01-01T00:00:00Z"])
)
ROWS = st.lists(
    st.dictionaries(
        st.sampled_from(
            [
                *COLUMNS,
                "hash_ids",
                "timestamp",
                "input_length",
                "output_length",
                "start",
                "end",
                "error",
                "streaming",
            ]
        ),
        VALUES,
    ),
    max_size=4,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, tail=st.binary(max_size=6), complete=st.booleans())
def test_any_file_is_read_or_refused(
    tmp_path: Path, rows: list[dict[str, object]], tail: bytes, complete: bool
) -> None:
    base = {"time": 1_700_000_000, "input_tokens": 1, "output_tokens": 1} if complete else {}
    text = "".join(json.dumps(base | row) + "\n" for row in rows)
    path = tmp_path / "x.jsonl"
    path.write_bytes(text.encode() + tail)
    try:
        frame = load_traces([(path, None)])
    except SourceError as error:
        assert str(path) in str(error)
    else:
        assert frame.schema == pl.Schema(COLUMNS)
