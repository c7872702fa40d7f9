"""PostHog's events of model calls, as its API and exports give them: latencies in seconds, the event at the call's end."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

T0 = datetime(2026, 9, 21, 8, 0, tzinfo=UTC)


def make(folder: Path) -> None:
    events = []
    for number in range(50):
        events.append(
            {
                "id": f"e{number}",
                "event": "$ai_generation",
                "distinct_id": f"user-{number % 7}",
                "timestamp": (T0 + timedelta(seconds=5 * number)).isoformat(),
                "properties": {
                    "$ai_trace_id": f"t{number // 2}",
                    "$ai_session_id": f"s{number // 10}",
                    "$ai_model": "gpt-4o",
                    "$ai_provider": "openai",
                    "$ai_input_tokens": 640,
                    "$ai_output_tokens": 90,
                    "$ai_cache_read_input_tokens": 512,
                    "$ai_latency": 2.25,
                    "$ai_http_status": 200,
                    "$ai_input": [{"role": "user", "content": "hi"}],
                },
            }
        )
    (folder / "events.json").write_text(json.dumps({"results": events, "next": None}))
