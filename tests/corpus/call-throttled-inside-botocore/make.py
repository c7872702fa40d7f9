"""Converse calls of botocore, throttled and sent again inside the SDK: one span a call, with the number of its retries."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written
from tests.corpus.otlp import CLIENT


def serve(trace: Trace) -> None:
    refused = trace.later and trace.draw.random() < 0.35
    with trace.within("POST /summarise", **served("/summarise")):
        trace.step(
            "chat anthropic.claude-3-5-sonnet-20240620-v1:0",
            trace.about(1_500) + (trace.about(5_200) if refused else 0),
            kind=CLIENT,
            scope="opentelemetry.instrumentation.botocore.bedrock-runtime",
            attributes={
                "rpc.system": "aws-api",
                "rpc.service": "Bedrock Runtime",
                "rpc.method": "Converse",
                "aws.region": "us-east-1",
                "aws.request_id": f"r{trace.number}",
                "retry_attempts": 3 if refused else 0,
                "http.status_code": 200,
                "gen_ai.system": "aws.bedrock",
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "anthropic.claude-3-5-sonnet-20240620-v1:0",
                "gen_ai.usage.input_tokens": 1_100,
                "gen_ai.usage.output_tokens": 130,
            },
        )


def make(folder: Path) -> None:
    written(folder, requests(serve, seed=60))
