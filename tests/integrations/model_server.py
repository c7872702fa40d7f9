"""A model server for the frameworks of the pages: OpenAI's chat and responses, whole and streamed, embeddings, and Ollama's chat. Standard library alone.

`python -m tests.integrations.model_server PORT`. A question with the word "weather" is answered by a call of the first tool that is offered, once.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

FIRST_TOKEN_S: Final = 0.03
CHUNK_S: Final = 0.004
WORDS: Final = ("It", " is", " sunny", " in", " Vienna", " today", ".")
INPUT_TOKENS: Final = 21
_NUMBER: Final = itertools.count(1)


def _usage() -> dict[str, int]:
    return {
        "prompt_tokens": INPUT_TOKENS,
        "completion_tokens": len(WORDS),
        "total_tokens": INPUT_TOKENS + len(WORDS),
    }


def _wants_tool(body: dict[str, Any]) -> dict[str, Any] | None:
    """The tool to call, if one is offered, the question asks for it, and it was not called yet."""
    text = json.dumps(body.get("messages", body.get("input", "")))
    if "weather" not in text or '"tool"' in text or "function_call_output" in text:
        return None
    for tool in body.get("tools") or ():
        function = tool.get("function", tool)
        name = next(iter(function.get("parameters", {}).get("properties", {})), None)
        return {"name": function["name"], "arguments": json.dumps({name: "Vienna"} if name else {})}
    return None


def chat(body: dict[str, Any]) -> dict[str, Any]:
    """A whole answer of /v1/chat/completions."""
    number, tool = next(_NUMBER), _wants_tool(body)
    message: dict[str, Any] = {"role": "assistant", "content": None if tool else "".join(WORDS)}
    if tool:
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": tool}]
    reason = "tool_calls" if tool else "stop"
    return {
        "id": f"chatcmpl-{number:08d}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _usage(),
    }


def chat_chunks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a streamed answer."""
    whole = chat(body)
    message = whole["choices"][0]["message"]
    head = {**whole, "object": "chat.completion.chunk"}
    del head["usage"]
    deltas = [{"role": "assistant", "content": word} for word in WORDS]
    if calls := message.get("tool_calls"):
        deltas = [{"role": "assistant", "tool_calls": [{"index": 0, **calls[0]}]}]
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    end = whole["choices"][0]["finish_reason"]
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": _usage()}


def response(body: dict[str, Any]) -> dict[str, Any]:
    """A whole answer of /v1/responses."""
    number, tool = next(_NUMBER), _wants_tool(body)
    if tool:
        ids = {"id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
        item: dict[str, Any] = {"type": "function_call", **ids, **tool}
    else:
        text = {"type": "output_text", "text": "".join(WORDS), "annotations": []}
        item = {"type": "message", "id": f"msg_{number}", "status": "completed"}
        item |= {"role": "assistant", "content": [text]}
    return {
        "id": f"resp_{number:08d}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": body["model"],
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": len(WORDS),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + len(WORDS),
        },
    }


def response_events(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a streamed response."""
    whole = response(body)
    item = whole["output"][0]
    place: dict[str, Any] = {"output_index": 0, "item_id": item["id"]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    ]
    if item["type"] == "message":
        part = {"content_index": 0, "logprobs": []}
        events += [
            {"type": "response.output_text.delta", **place, **part, "delta": word} for word in WORDS
        ]
    events += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    for number, event in enumerate(events):
        yield {**event, "sequence_number": number}


def ollama(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of Ollama's /api/chat; one line where it is not streamed. Durations in ns."""
    head = {"model": body["model"], "created_at": "2026-11-20T10:00:00Z"}
    end = {
        "done": True,
        "done_reason": "stop",
        "total_duration": 60_000_000,
        "load_duration": 1_000_000,
        "prompt_eval_count": INPUT_TOKENS,
        "prompt_eval_duration": 20_000_000,
        "eval_count": len(WORDS),
        "eval_duration": 30_000_000,
    }
    if body.get("stream") is False:
        message = {"role": "assistant", "content": "".join(WORDS)}
        yield {**head, "message": message, **end}
        return
    for word in WORDS:
        yield {**head, "message": {"role": "assistant", "content": word}, "done": False}
    yield {**head, "message": {"role": "assistant", "content": ""}, **end}


def embeddings(body: dict[str, Any]) -> dict[str, Any]:
    """An answer of /v1/embeddings, as lists of numbers."""
    asked = body["input"] if isinstance(body["input"], list) else [body["input"]]
    data = [{"object": "embedding", "index": i, "embedding": [0.1] * 8} for i in range(len(asked))]
    usage = {"prompt_tokens": 5, "total_tokens": 5}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


class Handler(BaseHTTPRequestHandler):
    """One request, in the form in which it was asked."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # else a chunk waits for the acknowledgement of the one before it
    )

    def do_POST(self) -> None:
        """Answer a call."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        time.sleep(FIRST_TOKEN_S)
        match self.path.rsplit("/", 1)[-1]:
            case "completions" if body.get("stream"):
                self._stream(chat_chunks(body), named=False)
            case "completions":
                self._whole(chat(body))
            case "responses" if body.get("stream"):
                self._stream(response_events(body), named=True)
            case "responses":
                self._whole(response(body))
            case "embeddings":
                self._whole(embeddings(body))
            case "chat" if body.get("stream") is not False:
                lines = (json.dumps(line).encode() + b"\n" for line in ollama(body))
                self._pieces("application/x-ndjson", lines)
            case "chat":
                self._whole(next(ollama(body)))
            case _:
                self.send_error(404)

    def _whole(self, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Iterator[dict[str, Any]], *, named: bool) -> None:
        def lines() -> Iterator[bytes]:
            for event in events:
                name = f"event: {event['type']}\n" if named else ""
                yield f"{name}data: {json.dumps(event)}\n\n".encode()
            if not named:
                yield b"data: [DONE]\n\n"

        self._pieces("text/event-stream", lines())

    def _pieces(self, kind: str, pieces: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()
            time.sleep(CHUNK_S)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """On loopback; a caller that goes away is no error."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


def serve(port: int = 0) -> Server:
    """A server on a port, or on a free one; `serve_forever` is the caller's."""
    return Server(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    serve(int(sys.argv[1])).serve_forever()
