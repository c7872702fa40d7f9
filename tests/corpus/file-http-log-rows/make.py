"""The same 40 chats, four of which failed, as servers, gateways and a load generator write them down."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

T0 = 1_790_000_000
PATH = "/v1/chat/completions"


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def caddy(n: int, at: float, failed: bool) -> dict[str, Any]:
    took = 30.0 if failed else 2.3
    return {
        "level": "error" if failed else "info",
        "ts": at + took,
        "logger": "http.log.access.log0",
        "msg": "handled request",
        "request": {"method": "POST", "host": "h", "uri": PATH, "headers": {"User-Agent": ["x"]}},
        "bytes_read": 1832,
        "duration": took,
        "size": 2210,
        "status": 504 if failed else 200,
    }


def apim(n: int, at: float, failed: bool) -> dict[str, Any]:
    own = 4_000 if n >= 28 else 20
    return {
        "ApiId": "azure-openai",
        "BackendTime": "0" if failed else "2300",
        "ClientTime": "1",
        "CompletionTokens": "" if failed else "110",
        "CorrelationId": f"5f1c0000-0000-4000-8000-{n + 1:012}",
        "IsRequestSuccess": str(not failed),
        "LastErrorReason": "TokenLimitExceeded" if failed else "",
        "Method": "POST",
        "ModelName": "" if failed else "gpt-4o",
        "OperationId": "ChatCompletions_Create",
        "PromptTokens": "" if failed else "800",
        "ResponseCode": "429" if failed else "200",
        "TimeGenerated": iso(at),
        "TotalTime": "4" if failed else str(2_300 + own),
        "TotalTokens": "" if failed else "910",
        "Url": "https://h/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21",
    }


def traefik(n: int, at: float, failed: bool) -> dict[str, Any]:
    own = 4.0 if n >= 60 else 0.0004
    origin = 0.004 if failed else 2.3
    return {
        "ClientUsername": "-",
        "DownstreamStatus": 502 if failed else 200,
        "Duration": round((own + origin) * 1e9),
        "OriginDuration": round(origin * 1e9),
        "OriginStatus": 502 if failed else 200,
        "Overhead": round(own * 1e9),
        "RequestMethod": "POST",
        "RequestPath": PATH,
        "ServiceName": "llm@docker",
        "SpanId": "0" * 16,
        "StartUTC": iso(at)[:-1] + "123Z",
        "TraceId": "0" * 32,
        "level": "info",
        "msg": "",
        "time": iso(at + own + origin)[:19] + "Z",
    }


def cloud_run(n: int, at: float, failed: bool) -> dict[str, Any]:
    return {
        "httpRequest": {
            "latency": "0.020000001s" if failed else "2.300000001s",
            "requestMethod": "POST",
            "requestUrl": f"https://llm-abc-ew.a.run.app{PATH}",
            "status": 429 if failed else 200,
        },
        "insertId": f"68d{n:09x}",
        "logName": "projects/demo/logs/run.googleapis.com%2Frequests",
        "receiveTimestamp": iso(at + 2.6),
        "resource": {"labels": {"service_name": "llm"}, "type": "cloud_run_revision"},
        "severity": "WARNING" if failed else "INFO",
        "spanId": f"{n + 1:016x}",
        "timestamp": iso(at),
        "trace": f"projects/demo/traces/{n + 1:032x}",
    }


def vegeta(n: int, at: float, failed: bool) -> dict[str, Any]:
    begun = datetime.fromtimestamp(at, timezone(timedelta(hours=9)))
    return {
        "attack": "",
        "seq": n,
        "code": 0 if failed else 200,
        "timestamp": begun.strftime("%Y-%m-%dT%H:%M:%S.%f434+09:00"),
        "latency": 30_000_000_000 if failed else 2_300_000_000,
        "bytes_out": 180,
        "bytes_in": 0 if failed else 2210,
        "error": f'Post "http://127.0.0.1:8000{PATH}": context deadline exceeded' if failed else "",
        "body": None,
        "method": "POST",
        "url": f"http://127.0.0.1:8000{PATH}",
        "headers": None,
    }


def make(folder: Path) -> None:
    for name, row in (
        ("caddy.log", caddy),
        ("traefik.log", traefik),
        ("vegeta.json", vegeta),
        ("apim.json", apim),
        ("cloud-run.json", cloud_run),
    ):
        failing = (9,) if name == "traefik.log" else (9, 19, 29, 39)
        rows = [
            row(n, T0 + 5.0 * n, n in failing) for n in range(100 if name == "traefik.log" else 40)
        ]
        text = "".join(json.dumps(one) + "\n" for one in rows)
        if name == "caddy.log":  # another line of its log, and one that a copy cut off
            text = json.dumps({"level": "info", "ts": T0, "msg": "serving"}) + f"\n{text}" + '{"le'
        if name in ("apim.json", "cloud-run.json"):
            text = json.dumps(rows[::-1], indent=2)
        (folder / name).write_text(text)
