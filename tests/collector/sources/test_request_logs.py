"""A line of a log is a call where it says when, what was asked of a model, how it ended and how long it took; any other line is none."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.collector.decode import otlp_json
from overrun.collector.sources import request_logs
from overrun.collector.sources.exports import unread
from overrun.collector.sources.log_lines import time_ns

AT = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
AT_NS = int(AT.timestamp()) * 10**9
GIN = '[GIN] 2026/09/21 - 14:13:20 | 200 | 1m2.5s |  172.30.0.1 | POST     "/api/chat"'


def spans_of(text: str, notes: list[str] | None = None) -> list[dict[str, Any]]:
    return [
        span
        for document in request_logs.documents(text, written_ns=AT_NS + 10**15, notes=notes)
        for resource in document["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def told(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


@pytest.mark.parametrize(
    "line",
    [
        "2026-09-21T14:13:20Z x",
        "2026/09/21 - 14:13:20 | 200",
        "time=2026-09-21T19:43:20.000+05:30 level=INFO",
        "[21/Sep/2026:16:13:20 +0200] x",
        "Sep 21 14:13:20 host unit[1]: x",
        "INFO 09-21 14:13:20 [x.py:1] x",
        str(AT_NS // 10**9),
        str(AT_NS // 10**6),
    ],
)
def test_a_time_is_read_in_the_forms_of_logs(line: str) -> None:
    assert time_ns(line, AT_NS + 10**15) == AT_NS


@pytest.mark.parametrize("line", ["", "slot 12: 10.0.0.1", "2026-13-41 99:99:99 x", "14:13:20 x"])
def test_a_line_without_a_date_has_no_time(line: str) -> None:
    assert time_ns(line, AT_NS) is None


@pytest.mark.parametrize(
    ("line", "path", "ms"),
    [
        (GIN, "/api/chat", 62_500),
        (
            "2026/09/21 14:13:20 | 200 | 2.3s | 127.0.0.1 | POST | /v1/chat/completions | -",
            "/v1/chat/completions",
            2_300,
        ),
        (
            '10.0.0.1 - - [21/Sep/2026:14:13:20 +0000] "POST /v1/messages HTTP/1.1" 200 31345 "-" "-" 1 "r@file" "http://10.0.0.2:8000" 2300ms',
            "/v1/messages",
            2_300,
        ),
        (
            '2026-09-21T14:13:20Z [INFO] Request 10.0.0.1 "POST /v1/chat/completions HTTP/1.1" 200 345 "py/3" 2.300123s',
            "/v1/chat/completions",
            2_300,
        ),
        (
            '10.0.0.1 [21/Sep/2026:14:13:20 +0000] "POST /v1/completions HTTP/2.0" 200 512 rt=2.300 uct="0.001" urt="2.299"',
            "/v1/completions",
            2_300,
        ),
    ],
)
def test_an_access_line_of_a_model_is_a_call(line: str, path: str, ms: int) -> None:
    (span,) = spans_of(line)
    assert told(span)["http.route"] == path
    assert span["endTimeUnixNano"] == AT_NS
    assert round((AT_NS - span["startTimeUnixNano"]) / 1e6) == ms
    assert span["status"]["code"] == 0


@pytest.mark.parametrize(
    "line",
    [
        '[GIN] 2026/09/21 - 14:13:20 | 200 | 26.33µs | 127.0.0.1 | HEAD     "/"',
        '[GIN] 2026/09/21 - 14:13:20 | 200 | 1.35s | 127.0.0.1 | POST     "/api/pull"',
        'INFO:     127.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 200 OK',  # no date and no time
        '2026-09-21T14:13:20Z "POST /v1/chat/completions HTTP/1.1" 200 512',  # no unit
    ],
)
def test_a_line_of_something_else_is_no_call(line: str) -> None:
    assert spans_of(line) == []


def test_a_refused_call_has_failed_and_an_embedding_is_none_of_the_answers() -> None:
    refused, embedded = spans_of(
        GIN.replace("200", "503") + "\n" + GIN.replace("/api/chat", "/api/embed")
    )
    assert refused["status"]["code"] == 2
    assert told(embedded)["gen_ai.operation.name"] == "embeddings"


ANSWER = """slot update_slots: id  0 | task 7 | new prompt, n_ctx_slot = 4096, task.n_tokens = 500
slot print_timing: id  0 | task 7 | prompt eval time =    1000.00 ms /   100 tokens (   10.00 ms per token,   100.00 tokens per second)
slot print_timing: id  0 | task 7 |        eval time =    2000.00 ms /    50 tokens (   40.00 ms per token,    25.00 tokens per second)
slot print_timing: id  0 | task 7 |       total time =    3000.00 ms /   150 tokens"""


@pytest.mark.parametrize(
    "before", ["Sep 21 14:13:20 box llama[5]: 0.10.000.000 I ", "0.10.000.000 I "]
)
def test_an_answer_of_llama_cpp_has_its_phases_and_what_the_cache_gave(before: str) -> None:
    notes: list[str] = []
    (span,) = spans_of("\n".join(before + line for line in ANSWER.splitlines()), notes)
    assert span["endTimeUnixNano"] - span["startTimeUnixNano"] == 3 * 10**9
    assert span["endTimeUnixNano"] == (AT_NS if before.startswith("Sep") else AT_NS + 10**15)
    values = told(span)
    assert values["gen_ai.latency.time_in_model_prefill"] == 1.0
    assert values["gen_ai.usage.input_tokens"] == "500"
    assert values["gen_ai.usage.cache_read.input_tokens"] == "400"
    assert len(notes) == (1 if before.startswith("Sep") else 2)


def test_answers_without_any_time_follow_one_another_up_to_the_file() -> None:
    notes: list[str] = []
    first, second = spans_of(f"{ANSWER}\n{ANSWER.replace('task 7', 'task 8')}", notes)
    assert second["endTimeUnixNano"] == AT_NS + 10**15
    assert first["endTimeUnixNano"] == second["startTimeUnixNano"] == AT_NS + 10**15 - 3 * 10**9
    assert any("no line has a time" in note for note in notes)


def test_answers_of_two_slots_that_end_between_each_other_are_told_apart() -> None:
    both = [
        f"0.{at:02}.000.000 I {line.replace('task 7', f'task {task}')}"
        for at, line in enumerate(ANSWER.splitlines()[1:], 10)
        for task in (7, 8)
    ]
    assert [told(span)["gen_ai.usage.output_tokens"] for span in spans_of("\n".join(both))] == [
        "50",
        "50",
    ]


def test_llama_cpp_in_json_lines_is_read_as_well() -> None:
    parts = (
        "prompt eval time     =    1000.00 ms /   100 tokens",
        "generation eval time =    2000.00 ms /    50 runs",
    )
    lines = [
        f'{{"timestamp":{AT_NS // 10**9},"level":"INFO","msg":"{words}"}}'
        for words in (*parts, "          total time =    3000.00 ms")
    ]
    (span,) = spans_of("\n".join(lines))
    assert span["startTimeUnixNano"] == AT_NS - 3 * 10**9


def test_what_ollama_prints_of_the_same_request_is_not_counted_twice() -> None:
    dated = "\n".join(f"Sep 21 14:13:20 box ollama[5]: {line}" for line in ANSWER.splitlines())
    assert len(spans_of(f"{dated}\n{GIN}")) == 1


ENVOY = '[2026-09-21T14:13:17.700Z] "POST /v1/messages HTTP/2" 200 - 1830 2210 2300 2290 "-" "x" "id" "h" "10.0.0.1:80"'
ISTIO = ENVOY.replace("200 -", '200 - via_upstream - "-"')
HAPROXY = (
    "Sep 21 14:13:20 lb haproxy[1]: 10.0.1.2:33 [21/Sep/2026:14:13:17.700] in gpu/a 0/{queue}/1/1200/2300 {status} 2750 - - ---- 12/12/8/4/0 5/0 {{x|y}} "
    '"POST /v1/chat/completions HTTP/1.1"'
)
BALANCER = (
    'https 2026-09-21T14:13:20.000000Z app/lb/5 10.0.0.1:2 10.0.0.2:80 {times} 34 366 "POST https://h:443/v1/chat/completions HTTP/1.1" "x" - - arn:a "Root=1" '
    '"h" "arn" 0 2026-09-21T14:13:17.700000Z "forward" "-" "-" "10.0.0.2:80" "200" "-" "-" TID_1'
)
INGRESS = '10.0.0.1 - - [21/Sep/2026:16:13:20 +0200] "POST /v1/chat/completions HTTP/1.1" 200 22 "-" "openai/python 9.109" 1830 2.300 [llm-80] [] 10.0.0.3:80 22 2.298 200 id'


@pytest.mark.parametrize(
    ("line", "failed"),
    [
        (ENVOY, False),
        (ENVOY.replace("200 -", "0 DC"), True),
        (ISTIO, False),
        (HAPROXY.format(queue=0, status=200), False),
        (BALANCER.format(times="0.001 2.297 0.002 200 200"), False),
        (BALANCER.format(times="-1 -1 -1 504 -"), True),
        (INGRESS, False),
        (INGRESS.partition(" 1830")[0] + " 2.300000", False),
    ],
)
def test_numbers_of_a_proxys_own_format_are_known_by_their_place(line: str, failed: bool) -> None:
    span = next(span for span in spans_of(line) if span["kind"] == 3)
    assert (span["startTimeUnixNano"], span["endTimeUnixNano"]) == (AT_NS - 23 * 10**8, AT_NS)
    assert (span["status"]["code"] == 2) is failed


def test_what_waits_in_a_proxys_queue_is_apart_from_the_call() -> None:
    call, around, queue = spans_of(HAPROXY.format(queue=800, status=503))
    assert queue["endTimeUnixNano"] - queue["startTimeUnixNano"] == 800 * 10**6
    assert (around["startTimeUnixNano"], around["endTimeUnixNano"]) == (
        queue["startTimeUnixNano"],
        call["endTimeUnixNano"],
    )
    assert {one["status"]["code"] for one in (call, around)} == {2}


def test_an_access_log_is_named_unless_its_lines_are_json() -> None:
    line = b'"POST /v1/chat/completions HTTP/1.1" 200 512'
    assert "an access log" in unread.of_bytes(b"10.0.0.1 - - [x] " + line)
    assert unread.of_bytes(b'{"request": ' + line) == ""


@given(line=st.text(max_size=60), at=st.integers(0, 90), cut=st.integers(0, 90))
def test_any_line_is_a_call_or_none(line: str, at: int, cut: int) -> None:
    for known in (
        *(ENVOY, ISTIO, INGRESS, HAPROXY.format(queue=1, status=-1)),
        BALANCER.format(times="-1 -1 -1 504 -"),
        GIN,
        f"0.10.000.000 I {ANSWER}",
        'x{total_time="1s"} Success 2026-09-21T14:13:20Z',
    ):
        changed = known[:at] + line + known[at + cut :]
        for document in request_logs.documents(changed, written_ns=AT_NS):
            otlp_json.from_document("traces", document)
