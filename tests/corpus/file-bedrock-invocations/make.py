"""Amazon Bedrock's log of model invocations: a JSON object a call; where it says how long the call took depends on the operation."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

T0 = datetime(2026, 9, 21, 8, 0, tzinfo=UTC)


def make(folder: Path) -> None:
    lines = []
    for number in range(90):
        told = {
            "schemaType": "ModelInvocationLog",
            "schemaVersion": "1.0",
            "timestamp": (T0 + timedelta(seconds=2 * number)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "accountId": "123456789012",
            "identity": {"arn": "arn:aws:sts::123456789012:assumed-role/app/session"},
            "region": "us-east-1",
            "requestId": f"11111111-2222-3333-4444-{number:012d}",
            "modelId": "anthropic.claude-sonnet-4-20250514-v1:0",
            "input": {
                "inputContentType": "application/json",
                "inputBodyJson": {"messages": [{"role": "user", "content": [{"text": "hi"}]}]},
                "inputTokenCount": 900,
            },
        }
        output = {"outputContentType": "application/json", "outputTokenCount": 120}
        if number % 3 == 0:
            told["operation"] = "Converse"
            output["outputBodyJson"] = {
                "metrics": {"latencyMs": 2_000},
                "stopReason": "end_turn",
                "usage": {"inputTokens": 900, "outputTokens": 120, "totalTokens": 1_020},
                "output": {"message": {"role": "assistant", "content": [{"text": "hello"}]}},
            }
        elif number % 3 == 1:
            told["operation"] = "InvokeModelWithResponseStream"
            output["outputBodyJson"] = [
                {"type": "message_start"},
                {
                    "type": "message_stop",
                    "amazon-bedrock-invocationMetrics": {
                        "inputTokenCount": 900,
                        "outputTokenCount": 120,
                        "invocationLatency": 3_000,
                        "firstByteLatency": 400,
                    },
                },
            ]
        else:
            told["operation"] = "InvokeModel"
            output["outputBodyJson"] = {
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 900, "output_tokens": 120},
            }
        told["output"] = output
        lines.append(json.dumps(told))
    (folder / "bedrock.json").write_text("\n".join(lines))
