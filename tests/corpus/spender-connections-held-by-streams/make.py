"""An endpoint that streams keeps its database session until the answer has ended: a pool of 15 connections, and twice the users after ten minutes."""

import heapq
import random
from pathlib import Path

from tests.corpus.otlp import resource, span, write

POOL, LIMIT_MS = 15, 30_000.0
DB = {
    "db.system": "postgresql",
    "db.name": "app",
    "net.peer.name": "pg",
    "net.peer.port": 5432,
    "db.user": "app",
}


def make(folder: Path) -> None:
    draw, spans, at = random.Random(72), [], 0.0
    free = [0.0] * POOL
    heapq.heapify(free)
    for n in range(900):
        later = at > 600_000
        at += draw.expovariate(1 / (980.0 if later else 1_900.0))
        begin = at + draw.uniform(2, 5)
        given = max(begin, heapq.heappop(free))
        lookup = draw.lognormvariate(0, 0.3) * 6
        ttft, output = draw.lognormvariate(0, 0.25) * 620, int(draw.lognormvariate(0, 0.4) * 520)
        chat_at = given + lookup + 14
        whole = ttft + output * 22.0
        end = chat_at + whole
        refused = given - begin > LIMIT_MS
        heapq.heappush(free, given if refused else end + 12)
        waited = min(given - begin, LIMIT_MS)
        status = {
            "status": {
                "code": 2,
                "message": "QueuePool limit of size 5 overflow 10 reached, connection timed out, timeout 30.00",
            }
        }
        spans += [
            span(
                n,
                "POST /chat/stream",
                at,
                (begin + waited + 3 if refused else end + 15) - at,
                "server root",
                {
                    "http.method": "POST",
                    "http.route": "/chat/stream",
                    "http.status_code": 500 if refused else 200,
                },
            ),
            span(
                n,
                "connect",
                begin,
                waited + draw.uniform(0.2, 1.2),
                "client connect < root",
                DB,
                more=status if refused else None,
            ),
        ]
        if refused:
            continue
        spans += [
            span(
                n,
                "SELECT app",
                given + 2,
                lookup,
                "client select < root",
                DB
                | {
                    "db.statement": "SELECT conversations.id FROM conversations WHERE conversations.id = %(id_1)s"
                },
            ),
            span(
                n,
                "chat gpt-4o",
                chat_at,
                whole,
                "client chat < root",
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.system": "openai",
                    "gen_ai.request.model": "gpt-4o",
                    "gen_ai.usage.input_tokens": int(draw.uniform(800, 2400)),
                    "gen_ai.usage.output_tokens": output,
                    "gen_ai.response.time_to_first_chunk": ttft / 1e3,
                },
            ),
            span(
                n,
                "INSERT app",
                end + 2,
                draw.uniform(3, 9),
                "client insert < root",
                DB
                | {
                    "db.statement": "INSERT INTO messages (role, content) VALUES (%(role)s, %(content)s)"
                },
            ),
        ]
    write(folder / "traces.json", resource("chat-api", spans))
