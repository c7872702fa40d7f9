"""Thirty requests each, as the APIs of four tools answer, and a table."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

T0 = 1_790_000_000
COLUMNS = (
    "generation_id,created_at,cost_total,cost_web_search,tokens_prompt,tokens_completion,tokens_reasoning,tokens_cached,model_permaslug,provider_name,"
    "cancelled,streamed,user,finish_reason_normalized,generation_time_ms,time_to_first_token_ms,api_key_name,app_name"
)


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def elastic(n: int, at: float, search: float) -> list[dict[str, Any]]:
    own = {"service": {"name": "rag"}, "agent": {"name": "otlp"}, "trace": {"id": f"{n + 1:032x}"}}
    root = f"{n + 1:016x}"

    def span(number: int, begin: float, took: float, kind: str, name: str) -> dict[str, Any]:
        told = {"id": f"{number}{n:015x}", "name": name, "type": kind}
        return {
            "@timestamp": iso(begin),
            "parent": {"id": root},
            "transaction": {"id": root},
            "span": told | {"duration": {"us": round(took * 1e6)}},
            "event": {"outcome": "success"},
        }

    whole = {"id": root, "name": "POST /chat", "type": "request"}
    call = span(8, at + search + 0.02, 1.9, "genai", "chat gpt-4o") | {
        "labels": {"gen_ai_request_model": "gpt-4o", "gen_ai_system": "openai"},
        "numeric_labels": {"gen_ai_usage_input_tokens": 900, "gen_ai_usage_output_tokens": 120},
    }
    documents = (
        {
            "@timestamp": iso(at),
            "transaction": whole | {"duration": {"us": round((search + 1.95) * 1e6)}},
            "http": {"response": {"status_code": 200}},
            "event": {"outcome": "success"},
        },
        span(7, at + 0.01, search, "db", "search docs-vectors"),
        call,
    )
    return [
        {"_index": "traces-apm-default", "_id": f"{n}-{at}", "_score": None, "_source": own | one}
        for at, one in enumerate(documents)
    ]


def weave(n: int, at: float, search: float) -> list[dict[str, Any]]:
    usage = {"gpt-4o": {"requests": 1, "prompt_tokens": 900, "completion_tokens": 120}}

    def call(number: int, op: str, begin: float, took: float, **more: Any) -> dict[str, Any]:
        return {
            "id": f"01990000-0000-7000-8000-{number}{n:011}",
            "op_name": f"weave:///acme/rag/op/{op}:a1b2c3",
            "trace_id": f"01990000-0000-7000-9000-{n + 1:012}",
            "parent_id": None if number == 1 else f"01990000-0000-7000-8000-1{n:011}",
            "started_at": iso(begin),
            "ended_at": iso(begin + took),
            "exception": None,
            "summary": {"weave": {"status": "success", "latency_ms": round(took * 1e3)}},
        } | more

    return [
        call(1, "answer", at, search + 1.95, summary={"usage": usage}),
        call(2, "retrieve", at + 0.01, search),
        call(
            3,
            "openai.chat.completions.create",
            at + search + 0.02,
            1.9,
            inputs={"model": "gpt-4o"},
            summary={"usage": usage},
        ),
    ]


def new_relic(n: int, at: float) -> dict[str, Any]:
    refused = n % 5 == 4
    row = {
        "appName": "rag",
        "duration": 310.25 if refused else 2_300.125,
        "id": f"e{n}",
        "request.model": "gpt-4o",
        "span_id": f"{n + 1:016x}",
        "timestamp": round(at * 1e3),
        "trace_id": f"{n + 1:032x}",
        "vendor": "openai",
    }
    if refused:
        return row | {"error": True}
    return row | {
        "response.headers.ratelimitRemainingTokens": 1_998_000,
        "response.model": "gpt-4o-2024-08-06",
        "response.usage.prompt_tokens": 900,
        "response.usage.completion_tokens": 110,
        "response.usage.total_tokens": 1_010,
    }


def make(folder: Path) -> None:
    searches = [(n, T0 + 5.0 * n, 4.0 if n >= 20 else 0.1) for n in range(30)]
    hits = [hit for one in searches for hit in elastic(*one)]
    answer = {"took": 3, "_shards": {"total": 1}, "hits": {"total": {"value": 90}, "hits": hits}}
    (folder / "search.json").write_text(json.dumps(answer))
    calls = [call for one in searches for call in weave(*one)]
    (folder / "weave.jsonl").write_text("".join(json.dumps(call) + "\n" for call in calls))
    events = [new_relic(n, at) for n, at, _ in searches][::-1]
    (folder / "nrql.json").write_text(
        json.dumps({"data": {"actor": {"account": {"nrql": {"results": events}}}}})
    )
    lines = [
        f"gen-{T0}-{n:020},{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}.123,0.001,0,900,120,0,0,deepseek/deepseek-chat,Together,false,true,,stop,2600,600,k,rag"
        for n, at, _ in searches
    ]
    (folder / "activity.csv").write_text("\ufeff" + "\r\n".join([COLUMNS, *lines[::-1]]) + "\r\n")
    (folder / "generations.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "data": {
                        "id": f"gen-{n}",
                        "created_at": iso(at),
                        "model": "meta-llama/llama-4-scout",
                        "streamed": True,
                        "latency": 1_016,
                        "generation_time": 2_940,
                        "native_tokens_prompt": 64,
                        "native_tokens_completion": 98,
                    }
                }
            )
            + "\n"
            for n, at, _ in searches
        )
    )
