"""What does a server say before it has any data? How to point an application and an inference server at it, with its real addresses."""

from __future__ import annotations

_EVERY_ADDRESS = ("0.0.0.0", "[::]")  # noqa: S104


def greeting(
    grpc: str | None, http: str | None, scheme: str = "http", *, token: bool = False
) -> str:
    """Copy-paste lines for an OpenTelemetry SDK, vLLM and SGLang; `grpc` and `http` are HOST:PORT, None where the port was taken.

    `token`: senders need one. A server that listens at every address is asked at this machine's own, and senders put in the name under which they see it.
    """
    to_grpc, to_http = _as_seen(grpc, "HOST"), _as_seen(http, "HOST")
    lines = ["No telemetry yet. Send some:", ""]
    if "HOST" in f"{to_grpc} {to_http}":
        lines += ["  HOST is this machine's name or address, as the senders see it.", ""]
    if token:
        lines += [
            "  every sender, with the ingest token (of OVERRUN_INGEST_TOKEN, OVERRUN_TOKEN or the token file)",
            "    export OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN",
            "",
        ]
    if to_http:
        lines += [
            "  an application with the OpenTelemetry SDK",
            f"    export OTEL_EXPORTER_OTLP_ENDPOINT={scheme}://{to_http} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
            "    export OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental   # time to first chunk, cached tokens",
            "",
        ]
    if to_grpc:
        lines += [
            "  vLLM",
            f"    vllm serve MODEL --otlp-traces-endpoint {scheme}://{to_grpc}",
            "",
            "  SGLang",
            f"    python -m sglang.launch_server --model-path MODEL --enable-trace --otlp-traces-endpoint {to_grpc}",
            "",
        ]
    here = _as_seen(http, "127.0.0.1")
    where = f"--url {scheme}://{here}" if here else "--db FILE"
    return "\n".join([*lines, f"  then: overrun report {where}", ""])


def _as_seen(address: str | None, host: str) -> str | None:
    """HOST:PORT with `host` where the server listens at every address of its machine."""
    if address is None:
        return None
    bound, _, port = address.rpartition(":")
    return f"{host}:{port}" if bound in _EVERY_ADDRESS else address
