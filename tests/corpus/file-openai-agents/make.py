"""What the OpenAI Agents SDK gives its exporters: traces and spans with ISO times, one item a line, and the same in batches as its own exporter posts them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

T0 = datetime(2026, 9, 21, 8, 0, tzinfo=UTC)


def items(n: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for number in range(n):
        begin = T0 + timedelta(seconds=7 * number)
        trace = f"trace_{number + 1:032x}"

        def told(
            name: str,
            parent: str | None,
            at: float,
            until: float,
            data: dict[str, Any],
            trace: str = trace,
            begin: datetime = begin,
        ) -> dict[str, Any]:
            return {
                "object": "trace.span",
                "id": f"span_{trace[-8:]}{name}",
                "trace_id": trace,
                "parent_id": parent and f"span_{trace[-8:]}{parent}",
                "started_at": (begin + timedelta(milliseconds=at)).isoformat(),
                "ended_at": (begin + timedelta(milliseconds=until)).isoformat(),
                "span_data": data,
                "error": None,
            }

        out.append(
            {
                "object": "trace",
                "id": trace,
                "workflow_name": "Support",
                "group_id": f"thread_{number // 2}",
                "metadata": None,
            }
        )
        usage = {
            "input_tokens": 800,
            "output_tokens": 40,
            "input_tokens_details": {"cached_tokens": 512},
            "output_tokens_details": {"reasoning_tokens": 16},
        }
        out += [
            told(
                "generate",
                "agent",
                210,
                1_410,
                {
                    "type": "generation",
                    "input": [{"role": "user", "content": "hi"}],
                    "output": None,
                    "model": "gpt-4.1",
                    "model_config": {"temperature": 0.1},
                    "usage": usage,
                },
            ),
            told(
                "function",
                "agent",
                1_410,
                2_010,
                {
                    "type": "function",
                    "name": "get_order",
                    "input": "{}",
                    "output": "...",
                    "mcp_data": None,
                },
            ),
            told(
                "answer",
                "agent",
                2_010,
                4_010,
                {
                    "type": "response",
                    "response_id": f"resp_{number}",
                    "usage": {"input_tokens": 900, "output_tokens": 150},
                },
            ),
            told(
                "guard", "agent", 0, 200, {"type": "guardrail", "name": "PII", "triggered": False}
            ),
            told(
                "agent",
                None,
                0,
                4_010,
                {
                    "type": "agent",
                    "name": "Support agent",
                    "handoffs": [],
                    "tools": ["get_order"],
                    "output_type": "str",
                },
            ),
        ]
    return out


def make(folder: Path) -> None:
    told = items(30)
    (folder / "spans.jsonl").write_text("\n".join(json.dumps(item) for item in told))
    (folder / "batch.json").write_text(json.dumps({"data": told}))
