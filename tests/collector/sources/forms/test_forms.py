"""Every form reads the sample beside it as it says; no form is tied with another; what a map may not do is refused in words."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overrun.collector.decode import otlp_json
from overrun.collector.errors import BadPayload, ConfigError
from overrun.collector.sources import forms
from overrun.collector.sources.account import Account
from overrun.collector.sources.forms import framing, locked, records

WRITTEN_S = (
    1_795_260_000  # a day after the samples were recorded: years and undated times follow from it
)
FORMS = {form.name: form for form in forms.catalogue()}
OBJECTS = "select row->>'$.s' as \"start\", row->>'$.e' as \"end\" from f"


def sample(name: str) -> Path:
    (path,) = forms.FOLDER.glob(f"{name}.sample.*")
    return path


def read(form: forms.Form, path: Path) -> tuple[list[dict[str, Any]], Account]:
    head = path.read_bytes()[: framing.LONGEST_HEAD]
    account = Account(path.name)
    with path.open("rb") as stream:
        return list(forms.read(form, path, stream, head, account)), account


def spans_of(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for document in documents:
        for resource in document.get("resourceSpans", ()):
            for scope in resource["scopeSpans"]:
                yield from scope["spans"]


def points_of(documents: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        for resource in document.get("resourceMetrics", ()):
            for scope in resource["scopeMetrics"]:
                for metric in scope["metrics"]:
                    found.setdefault(metric["name"], []).extend(metric["gauge"]["dataPoints"])
    return found


@pytest.mark.parametrize("name", FORMS)
def test_a_form_knows_and_reads_its_sample(name: str, tmp_path: Path) -> None:
    form, path = FORMS[name], tmp_path / sample(name).name
    path.write_bytes(sample(name).read_bytes())
    os.utime(path, (WRITTEN_S, WRITTEN_S))
    assert forms.recognise(path.read_bytes(), forms.catalogue()) == (form, [])
    right = dict(form.expected)
    if words := right.pop("refused", None):
        with pytest.raises(BadPayload, match=words):
            read(form, path)
        assert not right
        return
    if form.tool:
        assert right == runs(form, path, right)
        return
    documents, account = read(form, path)
    assert account.used == account.rows > 0
    spans, points = list(spans_of(documents)), points_of(documents)
    if right.pop("undated", False):
        assert max(span["endTimeUnixNano"] for span in spans) == WRITTEN_S * 10**9
    assert right == {
        key: value for key, value in figures(spans, points, right).items() if key in right
    }
    for document in documents:
        signal = "traces" if "resourceSpans" in document else "metrics"
        assert otlp_json.from_document(signal, document)


def runs(form: forms.Form, path: Path, right: dict[str, Any]) -> dict[str, Any]:
    """What came of a load generator's sample, under the names of `expected`: of the first run, and of its first request."""
    with path.open("rb") as stream:
        test = forms.load_test(form, path, stream, path.read_bytes())
    run, requests = test.runs[0], test.requests
    metric, at, _ = right.get("percentile", ["", 0.0, 0.0])
    found = {
        "requests": len(requests),
        "runs": len(test.runs),
        "run": run.name,
        "failed": run.summary.failed
        if run.summary
        else sum(one.error is not None for one in requests),
        "e2e_ms": requests[0].e2e_ns / 1e6 if requests else None,
        "ttft_ms": (requests[0].ttft_ns or 0) / 1e6 if requests else None,
        "percentile": [
            metric,
            at,
            run.summary.percentiles[metric][at] if metric and run.summary else 0.0,
        ],
    }
    return {
        key: pytest.approx(found[key], abs=1e-3)
        if key.endswith("_ms")
        else found[key]
        if key != "percentile"
        else [metric, at, round(found[key][2], 3)]
        for key in right
    }


def figures(
    spans: list[dict[str, Any]], points: dict[str, list[dict[str, Any]]], right: dict[str, Any]
) -> dict[str, Any]:
    """What came of a sample, under the names of a form's `expected`."""
    key = right.get("attribute", [""])[0]
    told = [
        str(next(iter(one["value"].values())))
        for span in spans
        for one in span["attributes"]
        if one["key"] == key
    ]
    newest = max(
        (point for listed in points.values() for point in listed),
        key=lambda point: (point["timeUnixNano"], point["asDouble"]),
        default={"asDouble": None},
    )
    waiting = points.get("vllm:num_requests_waiting", [newest])
    return {
        "spans": len(spans),
        "failed": sum(span["status"]["code"] == 2 for span in spans),
        "first_ns": min((span["startTimeUnixNano"] for span in spans), default=0),
        "attribute": [key, told[0] if told else ""],
        "points": sum(map(len, points.values())),
        "metrics": sorted(points),
        "last_value": waiting[-1]["asDouble"],
    }


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('/etc/hostname')",
        "select * from '/etc/hostname'",
        "select * from glob('/*')",
        "select * from account",
        "select * from read_csv('http://127.0.0.1:9/x.csv')",
        "select 1/0 as \"start\", from f where error('no') is null",
    ],
)
def test_a_map_reads_nothing_but_its_file(sql: str) -> None:
    with (
        locked.Locked("row", "json", 0) as database,
        pytest.raises(BadPayload, match="cannot be run"),
    ):
        list(database.select(sql, ['{"a": 1}']))


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to '/tmp/x'",
        "attach '/tmp/x.db'",
        "set enable_external_access = true",
        "install httpfs",
        "select 1; select 2",
        "pragma version",
        "create table t as select 1",
        "",
    ],
)
def test_a_map_is_one_select(sql: str) -> None:
    with pytest.raises(BadPayload, match="one SELECT"):
        locked.check(sql)


def test_a_locked_database_takes_no_setting() -> None:
    with locked.Locked("row", "json", 0) as database, pytest.raises(BadPayload):
        list(database.select("set memory_limit = '1TB'", []))


def test_a_query_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked, "SECONDS", 0.2)
    endless = "select count(*) as n from range(100000000000) a, range(100000) b"
    with (
        locked.Locked("row", "json", 0) as database,
        pytest.raises(BadPayload, match="still at work"),
    ):
        list(database.select(endless, []))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("-- tittle = 'x'\nselect 1", "tittle"),
        ("-- read = 'words'\nselect 1", "words"),
        ("-- title = \nselect 1", "no TOML"),
        ("-- title = 'x'\n", "no SELECT"),
    ],
)
def test_a_header_that_says_nothing_known_is_named(header: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        forms.parse("own", header)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["start", "wrong"], "wrong"),
        (["end"], "start"),
        (["start"], "duration_ms"),
        (["metric"], "time"),
    ],
)
def test_columns_that_nobody_documented_are_refused(columns: list[str], words: str) -> None:
    with pytest.raises(BadPayload, match=words):
        records.check(columns)


@pytest.mark.parametrize(
    "text",
    [
        '{"s": 1790000000, "e": 1790000001}\n{"s": 1790000002, "e": 1790000003}\n',
        '[{"s": 1790000000, "e": 1790000001}, {"s": 1790000002, "e": 1790000003}]',
        '{"s": 1790000000,\n "e": 1790000001}{"s": 1790000002,\n "e": 1790000003}',
        'started\n{\n"s": 1790000000,\n "e": 1790000001}\nnext\n{\n"s": 1790000002, "e": 1790000003\n}\nbye {x\n',
        '2026-09-21 INFO {"s": 1790000000, "e": 1790000001}\n2026-09-21 INFO {"s": 1790000002, "e": 1790000003}\n',
        "s,e\n1790000000,1790000001\n1790000002,1790000003\n",
        's;e;"x y"\r\n1790000000;1790000001;\r\n1790000002;1790000003;z\r\n',
        "s\te\n1790000000\t1790000001\n1790000002\t1790000003\n",
        '{"s": 1790000000, "e": 1790000001, "x": NaN}\n{"s": 1790000002, "e": 1790000003}\n',
        '[{"s": 1790000000, "e": 1790000001, "x": Infinity}, {"s": 1790000002, "e": 1790000003}]',
    ],
)
def test_rows_are_the_same_however_they_are_framed(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text(text)
    documents, account = read(forms.parse("own", OBJECTS), path)
    assert [span["startTimeUnixNano"] // 10**9 for span in spans_of(documents)] == [
        1_790_000_000,
        1_790_000_002,
    ]
    assert account.used == 2


@pytest.mark.parametrize(
    "text",
    [
        "{" * 100_000,
        "[" * 100_000,
        '{"a":' * 100_000,
        ",".join("a" * 3 for _ in range(100_000)),
        "\x00{}",
        "{}",
        "[]",
        "",
    ],
)
def test_no_framing_ends_in_an_exception_of_another_kind(text: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_text(text)
    documents, account = read(forms.parse("own", OBJECTS), path)
    assert not list(spans_of(documents))
    assert not account.used
    assert forms.recognise(text.encode(), forms.catalogue()) == (None, [])


def test_rows_that_cannot_be_are_counted_and_the_first_reason_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"s": 1790000001, "e": 1790000000}\n{"s": "soon"}\n{"s": 1790000000, "e": 1790000001}\n'
    )
    _, account = read(forms.parse("own", OBJECTS), path)
    assert (account.rows, account.used) == (3, 1)
    assert account.lost.startswith("row 1: it ends -1.000 s after its start")


def test_a_first_token_is_a_moment_in_any_form_and_lies_within_its_call(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    moments = (1790000000.5, 1790000000500, '"2026-09-21T14:13:20.5Z"', 1790000009)
    path.write_text(
        "".join(f'{{"s": 1790000000, "e": 1790000001, "t": {one}}}\n' for one in moments)
    )
    sql = OBJECTS.replace(" from f", ", row->>'$.t' as first from f")
    documents, account = read(forms.parse("own", sql), path)
    told = [
        one["value"]["doubleValue"] for span in spans_of(documents) for one in span["attributes"]
    ]
    assert told == [0.5, 0.5, 0.5]
    assert (account.firsts, account.firsts_outside) == (4, 1)
