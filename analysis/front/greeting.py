"""What does a server say before it has any data? How to point an application and an inference server at it, with its real addresses."""

from __future__ import annotations


def greeting(grpc: str | None, http: str | None, scheme: str = "http") -> str:
    """Copy-paste lines for an OpenTelemetry SDK, vLLM and SGLang; `grpc` and `http` are HOST:PORT, None where the port was taken."""
    lines = ["No telemetry yet. Send some:", ""]
    if http:
        lines += [
            "  an application with the OpenTelemetry SDK",
            f"    export OTEL_EXPORTER_OTLP_ENDPOINT={scheme}://{http} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
            "    export OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental   # time to first chunk, cached tokens",
            "",
        ]
    if grpc:
        lines += [
            "  vLLM",
            f"    vllm serve MODEL --otlp-traces-endpoint {scheme}://{grpc}",
            "",
            "  SGLang",
            f"    python -m sglang.launch_server --model-path MODEL --enable-trace --otlp-traces-endpoint {grpc}",
            "",
        ]
    where = f"--url {scheme}://{http}" if http else "--db FILE"
    return "\n".join([*lines, f"  then: overrun report {where}", ""])
