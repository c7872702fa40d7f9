"""Does `overrun.models.litellm_strategy` work inside the real LiteLLM? Run by `make check-litellm`, which installs it apart from our own packages.

Two mock backends behind a real `litellm.Router`; a predictor trained on a synthetic trace. Ends with status 1 where something is not so.
"""

import asyncio
import collections
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import litellm

from overrun.models.litellm_strategy import LengthRouting, _row

# What the backends generate, by the route that the test names in the prompt.
LENGTHS = {"long": 400, "short": 20}


class Backend(BaseHTTPRequestHandler):
    """An OpenAI-compatible endpoint that takes 1 ms a token."""

    served: ClassVar[collections.Counter[str]] = collections.Counter()
    lock: ClassVar = threading.Lock()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        kind = body["messages"][-1]["content"].split()[0]
        tokens = LENGTHS[kind]
        with self.lock:
            self.served[f"{self.server.server_port} {kind}"] += 1
        time.sleep(tokens / 1_000)
        answer = {
            "id": "x", "object": "chat.completion", "created": 1, "model": "mock",
            "usage": {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens},
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        }  # fmt: skip
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


async def check(artifact: Path) -> list[str]:
    """Return what is wrong."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Backend) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    deployments = [
        {"model_name": "chat", "litellm_params": {"model": "openai/mock", "api_base": f"http://127.0.0.1:{server.server_port}/v1", "api_key": "none"},
         "model_info": {"id": str(server.server_port)}}
        for server in servers
    ]  # fmt: skip
    router = litellm.Router(model_list=deployments, num_retries=0)
    strategy = LengthRouting(router, artifact)
    router.set_custom_routing_strategy(strategy)

    async def ask(kind: str) -> None:
        await router.acompletion(
            "chat",
            messages=[{"role": "user", "content": f"{kind} please"}],
            metadata={"route": kind},
        )

    # One long request holds the first backend; ten short ones (10 x 20 < 400) then all belong to the other.
    waiting = [asyncio.create_task(ask("long"))]
    await asyncio.sleep(0.1)
    for _ in range(10):
        waiting.append(asyncio.create_task(ask("short")))
        await asyncio.sleep(0.01)
    await asyncio.gather(*waiting)
    for _ in range(100):
        if not any(strategy.balancer.owed(str(server.server_port)) for server in servers):
            break
        await asyncio.sleep(0.05)
    wrong = []
    served = dict(Backend.served)
    holder = next(key.split()[0] for key in served if key.endswith("long"))
    if served.get(f"{holder} short", 0):
        wrong.append(f"short requests went behind the long one: {served}")
    if sum(served.values()) != 11:
        wrong.append(f"11 requests were sent, served: {served}")
    owed = {
        server.server_port: strategy.balancer.owed(str(server.server_port)) for server in servers
    }
    if any(owed.values()):
        wrong.append(f"finished requests are still on the account: {owed}")
    if strategy.balancer._predictor._history.window("route", ("short",)) is None:
        wrong.append("the predictor was not told what the requests generated")
    for server in servers:
        server.shutdown()
    return wrong + check_rows()


def check_rows() -> list[str]:
    """Return what is wrong with what the predictor is told of a request."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
    parts = [
        {"role": "system", "content": None},
        {"role": "user", "content": [image, {"type": "text", "text": "what is this"}]},
    ]
    row = _row("chat", parts, {"max_completion_tokens": 99})
    told = {name: row[name] for name in ("input_tokens", "max_tokens", "prompt")}
    return (
        []
        if told == {"input_tokens": 3, "max_tokens": 99, "prompt": "what is this"}
        else [f"a message with an image is told as {str(told)[:200]}"]
    )


if __name__ == "__main__":
    problems = asyncio.run(check(Path(sys.argv[1])))
    print(
        "\n".join(problems)
        or f"LiteLLM {litellm.__dict__.get('__version__', '')} routes by predicted length: all short requests avoided the busy backend"
    )
    sys.exit(1 if problems else 0)
