"""What `aws xray batch-get-traces` prints: segments as JSON in strings, subsegments inside one another, times in seconds."""

import json
from pathlib import Path
from typing import Any

T0 = 1_790_000_000.0


def document(number: int) -> dict[str, Any]:
    at = T0 + 5 * number
    trace = f"1-6ab13f80-{number:024x}"
    bedrock = {
        "id": f"b{number:015x}",
        "name": "Bedrock Runtime",
        "start_time": at + 0.3,
        "end_time": at + 2.8,
        "namespace": "aws",
        "aws": {
            "operation": "Converse",
            "region": "us-east-1",
            "remote_resource_type": "AWS::Bedrock::Model",
            "remote_resource_identifier": "anthropic.claude-sonnet-4-20250514-v1:0",
        },
        "http": {"response": {"status": 200}},
        "metadata": {
            "default": {
                "gen_ai.system": "aws.bedrock",
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "anthropic.claude-sonnet-4-20250514-v1:0",
                "gen_ai.usage.input_tokens": 900,
                "gen_ai.usage.output_tokens": 120,
            }
        },
    }
    table = {
        "id": f"d{number:015x}",
        "name": "DynamoDB",
        "start_time": at + 0.05,
        "end_time": at + 0.25,
        "namespace": "aws",
        "aws": {"operation": "Query", "table_name": "sessions"},
        "http": {"response": {"status": 200}},
    }
    segment = {
        "id": f"a{number:015x}",
        "trace_id": trace,
        "name": "assistant-api",
        "origin": "AWS::ECS::Container",
        "start_time": at,
        "end_time": at + 3.0,
        "http": {
            "request": {"method": "POST", "url": "https://assistant.example.net/chat"},
            "response": {"status": 200},
        },
        "annotations": {"tenant": "blue"},
        "subsegments": [
            {
                "id": f"c{number:015x}",
                "name": "handler",
                "start_time": at + 0.02,
                "end_time": at + 2.95,
                "subsegments": [table, bedrock],
            }
        ],
    }
    return {
        "Id": trace,
        "Duration": 3.0,
        "Segments": [{"Id": segment["id"], "Document": json.dumps(segment)}],
    }


def make(folder: Path) -> None:
    traces = [document(number) for number in range(40)]
    (folder / "traces.json").write_text(
        json.dumps({"Traces": traces, "UnprocessedTraceIds": []}, indent=2)
    )
