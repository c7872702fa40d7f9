"""What instrumentations of SDKs and frameworks really sent, and what we make of it: one folder a package under data/senders, recorded against a server that
wrote down the truth.

`truth.json` of a folder has, in order of time, one line per model call as the server saw it (429s before it are its attempts). `untold` are the fields that
the package does not tell, of any call (true) or of some (their indexes): they must stay empty, not be guessed. `differs` are the numbers that the package
itself tells wrongly, by the index of the call, and `why`. Every prompt, answer, tool result and error message of the recordings has the word SECRET in it:
none may be stored.
"""

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard

from overrun.collector.ingest.writer import LOGS
from overrun.collector.normalise import log_records
from overrun.collector.normalise.stages import MODEL_STAGES
from tests.collector.oracle_store import Held, held, pipeline, send

SENDERS = Path(__file__).parents[1] / "data" / "senders"
FOLDERS = sorted(path.name for path in SENDERS.iterdir() if path.is_dir())
FIELDS = (
    "model",
    "provider",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "max_tokens",
    "streaming",
    "finish_reason",
    "response_id",
    "attempts",
    "error",
    "session",
)


# Requests of services and routes that ask no model stand beside those of the application, which do.
APART = ("side", "other")


@functools.cache
def truth(name: str) -> dict[str, Any]:
    return dict(json.loads((SENDERS / name / "truth.json").read_text()))


@functools.cache
def stored(name: str) -> Held:
    """The views after all bodies of a recording."""
    bodies = {
        path.name: zstandard.ZstdDecompressor().decompress(path.read_bytes())
        for path in sorted((SENDERS / name).glob("*.zst"))
    }
    with pipeline() as one:
        send(one, [body for file, body in bodies.items() if ".traces." in file])
        for body in (body for file, body in bodies.items() if ".logs." in file):
            one.writer.submit(LOGS, log_records.pack(log_records.told(body)[1])).result()
        one.drain()
        return held(one)


def expected(name: str, index: int) -> dict[str, Any]:
    """What the views should say of a call."""
    said = truth(name)
    untold = {field for field, which in said["untold"].items() if which is True or index in which}
    call = {field: None if field in untold else said["calls"][index].get(field) for field in FIELDS}
    return call | said.get("differs", {}).get(str(index), {})


@pytest.mark.parametrize("name", FOLDERS)
def test_calls_are_those_that_the_server_saw(name: str) -> None:
    got = [{field: call[field] for field in FIELDS} for call in stored(name).calls]
    assert got == [expected(name, index) for index in range(len(truth(name)["calls"]))]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_first_token_is_told_where_the_package_tells_it_and_lies_between_the_servers_and_the_end(
    name: str,
) -> None:
    said = truth(name)
    for index, (call, true) in enumerate(zip(stored(name).calls, said["calls"], strict=True)):
        if true.get("ttft_ms") is None or index in said["no_ttft"]:
            assert call["ttft_ms"] is None, index
        else:
            # Early: the server sent a role, or said that it begins, before it had a token.
            assert (
                (0 if index in said["early"] else true["ttft_ms"])
                <= call["ttft_ms"]
                <= call["e2e_ms"]
            ), index


@pytest.mark.parametrize("name", FOLDERS)
def test_requests_are_those_of_the_application(name: str) -> None:
    got = [
        [
            request["llm_calls"],
            request["tool_calls"],
            *sorted(
                stage
                for stage in ("retrieval", "guardrail", "tool", "network")
                if request[f"{stage}_ms"]
            ),
        ]
        for request in stored(name).requests
        if request["workload"] not in APART
    ]
    assert got == truth(name)["requests"]


@pytest.mark.parametrize(
    "name", [name for name in FOLDERS if name != "celery"]
)  # its jobs run beside what sent them
def test_requests_spend_the_time_of_their_calls_on_models(name: str) -> None:
    calls = Counter[str]()
    for call in stored(name).calls:
        calls[call["trace_id"]] += call["e2e_ms"]
    for request in stored(name).requests:
        if request["llm_calls"]:
            # Beside them the pauses of a busy machine, the way to the provider, and what lies between attempts. A check that asks a model is a guardrail's.
            spent = sum(request[f"{stage}_ms"] for stage in (*MODEL_STAGES, "network", "guardrail"))
            assert spent >= 0.5 * min(calls[request["trace_id"]], request["e2e_ms"]), request[
                "trace_id"
            ]


@pytest.mark.parametrize("name", FOLDERS)
def test_nobodys_words_are_stored(name: str) -> None:
    assert "SECRET" not in repr(stored(name))


@pytest.mark.parametrize("name", FOLDERS)
def test_model_calls_name_their_vocabulary(name: str) -> None:
    held_ = stored(name)
    calls = {call["span_id"] for call in held_.calls}
    assert (
        sorted({span["dialect"] for span in held_.spans if span["span_id"] in calls})
        == truth(name)["dialects"]
    )


def test_a_request_to_flask_lasts_until_the_end_of_the_answer_that_its_span_does_not_wait_for() -> (
    None
):
    found = stored("otel-fastapi-flask")
    calls = {call["trace_id"]: call for call in found.calls}
    spans = {
        span["trace_id"]: span
        for span in found.spans
        if span["kind"] == "server" and span["name"] == "POST /fask"
    }
    requests = [request for request in found.requests if request["route"] == "/fask"]
    assert len(requests) == len(spans) == 2
    for request in requests:
        call = calls[request["trace_id"]]
        before_ms = (call["start"] - request["start"]) / 1000
        # The server's own numbers: a first token after 82 ms, 16 tokens.
        assert call["ttft_ms"] >= 82
        assert request["ttft_ms"] == pytest.approx(before_ms + call["ttft_ms"], abs=0.002)
        assert request["e2e_ms"] == pytest.approx(before_ms + call["e2e_ms"], abs=0.002)
        assert spans[request["trace_id"]]["duration_ms"] < request["ttft_ms"]


def test_what_openais_client_asks_for_beside_texts_has_a_stage_and_is_no_call() -> None:
    spans = [
        span
        for span in stored("openinference-openai-other").spans
        if span["scope_name"].endswith(".openai")
    ]
    stages = {span["name"]: span["stage"] for span in spans if span["role"] == "plain"}
    assert stages == {
        "SyncPage[Model]": "network",
        "ModerationCreateResponse": "guardrail",
        "ImagesResponse": "network",
        "Transcription": "network",
        "HttpxBinaryResponseContent": "network",
        "FileObject": "network",
        "SyncPage[VectorStoreSearchResponse]": "retrieval",
    }
    assert {span["name"] for span in spans if span["role"] == "llm"} == {
        "ChatCompletion",
        "Response",
    }


def test_streamed_answers_out_of_a_gateways_cache_are_no_calls() -> None:
    found = stored("litellm-v1-cache")
    stored_ids = sorted(
        span["response_id"]
        for span in found.spans
        if span["stage"] == "gateway" and span["role"] == "plain"
    )
    assert stored_ids == [call["response_id"] for call in found.calls]


def test_a_request_to_dynamo_is_its_clients_call_whatever_trace_it_is_told_in() -> None:
    found = stored("dynamo")
    requests = [one for one in found.requests if one["workload"] not in APART]
    fronts = {
        span["response_id"]: span["trace_id"]
        for span in found.spans
        if span["name"] == "http-request"
    }
    clients = {
        span["response_id"]: span["trace_id"] for span in found.spans if span["name"] == "chat mock"
    }
    assert len(fronts) == 10
    assert set(clients) < set(fronts)
    assert all(fronts[answer] != trace for answer, trace in clients.items())
    # The eight of the application, and two that nobody else tells of.
    assert [request["route"] for request in requests] == ["/ask"] * 8 + ["http-request"] * 2
    assert all(request["first_token_ms"] > 0 and request["decode_ms"] > 0 for request in requests)
    assert {
        span["stage"]
        for span in found.spans
        if span["name"].startswith("kv_router.") and span["role"] == "plain"
    } == {"queue"}
