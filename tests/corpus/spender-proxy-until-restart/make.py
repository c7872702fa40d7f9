"""A LiteLLM proxy needs more and more of its one core for each request, until it is restarted every two hours; the providers are as quick as ever."""

import random
from pathlib import Path

from tests.corpus.otlp import resource, span, write


def make(folder: Path) -> None:
    draw, at = random.Random(80), 0.0
    app, lives = [], {0: [], 1: [], 2: []}
    for n in range(1_500):
        at += draw.expovariate(1 / 12_000)
        life, age_h = int(at // 7_200_000), (at % 7_200_000) / 3_600_000
        if life > 2:
            break
        own = 60 + 900 * age_h**2 * draw.lognormvariate(0, 0.35)
        model, speed, ttft = draw.choice(
            (
                ("gpt-4o", 14.0, 480),
                ("claude-3-5-sonnet", 17.0, 800),
                ("gemini-1.5-flash", 7.0, 350),
            )
        )
        first, output = draw.lognormvariate(0, 0.25) * ttft, int(draw.lognormvariate(0, 0.5) * 160)
        whole = first + output * speed
        read = int(draw.lognormvariate(0, 0.6) * 900)
        usage = {"gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": output}
        called = at + own * 0.9 + 12
        app += [
            span(
                n,
                "POST /complete",
                at - 6,
                own + whole + 40,
                "server root",
                {"http.request.method": "POST", "http.route": "/complete"},
            ),
            span(
                n,
                f"chat {model}",
                at,
                own + whole + 22,
                "client call < root",
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": model,
                    "gen_ai.request.stream": True,
                    "server.address": "litellm",
                    "gen_ai.response.time_to_first_chunk": (own + first + 16) / 1e3,
                }
                | usage,
            ),
        ]
        lives[life] += [
            span(
                n,
                "POST /chat/completions",
                at + 3,
                own + whole + 16,
                "server proxy < call",
                {
                    "http.request.method": "POST",
                    "http.route": "/chat/completions",
                    "http.response.status_code": 200,
                },
            ),
            span(
                n,
                "fastapi.dependencies",
                at + 4,
                own * 0.3 + 4,
                "internal deps < proxy",
                {"code.function.name": "litellm.proxy.proxy_server.chat_completion"},
            ),
            span(n, "auth /chat/completions", at + 5, own * 0.3 + 2, "internal auth < deps"),
            span(
                n,
                "fastapi.endpoint",
                at + own * 0.3 + 9,
                own * 0.7 + whole + 9,
                "internal endpoint < proxy",
                {"code.function.name": "litellm.proxy.proxy_server.chat_completion"},
            ),
            span(
                n,
                f"route {model}",
                at + own * 0.8 + 9,
                1,
                "internal route < endpoint",
                {"gen_ai.request.model": model},
            ),
            span(
                n,
                f"chat {model}",
                called,
                whole,
                "client up < deps",
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": model,
                    "litellm.call_id": f"c{n}",
                    "litellm.call_type": "acompletion",
                    "gen_ai.response.time_to_first_chunk": first / 1e3,
                }
                | usage,
            ),
        ]
    proxies = [
        resource(
            "litellm",
            [one for one in spans if (one["name"].startswith(("fastapi", "POST"))) is web],
            scope="fastapi" if web else "litellm",
            service__instance__id=f"litellm-{life}",
        )
        for life, spans in lives.items()
        for web in (True, False)
    ]
    write(folder / "traces.json", resource("web", app), *proxies)
