"""What does a server say before it has any data? How to point an application and an inference server at it, with its real addresses."""

from __future__ import annotations

_EVERY_SENDER = """\
  every sender, with the ingest token (of OVERRUN_INGEST_TOKEN, OVERRUN_TOKEN or the token file)
    export OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN"""
_OF_HTTP = """\
  an application with the OpenTelemetry SDK
    export OTEL_EXPORTER_OTLP_ENDPOINT={to} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf
    export OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental   # time to first chunk, cached tokens"""
_OF_GRPC = """\
  vLLM
    vllm serve MODEL --otlp-traces-endpoint {scheme}://{to}

  SGLang
    python -m sglang.launch_server --model-path MODEL --enable-trace --otlp-traces-endpoint {to}"""
_EVERY_ADDRESS = ("0.0.0.0", "[::]")  # noqa: S104


def greeting(
    grpc: str | None, http: str | None, scheme: str = "http", *, token: bool = False
) -> str:
    """Copy-paste lines for an OpenTelemetry SDK, vLLM and SGLang; `grpc` and `http` are HOST:PORT, None where the port was taken.

    `token`: senders need one. A server that listens at every address is asked at this machine's own, and senders put in the name under which they see it.
    """
    to_grpc, to_http = _as_seen(grpc, "HOST"), _as_seen(http, "HOST")
    seen = "HOST" in f"{to_grpc} {to_http}"
    said = [
        "No telemetry yet. Send some:",
        "  HOST is this machine's name or address, as the senders see it." if seen else "",
        _EVERY_SENDER if token else "",
        _OF_HTTP.format(to=f"{scheme}://{to_http}") if to_http else "",
        _OF_GRPC.format(scheme=scheme, to=to_grpc) if to_grpc else "",
    ]
    here = _as_seen(http, "127.0.0.1")
    where = f"--url {scheme}://{here}" if here else "--db FILE"
    return "\n\n".join([*filter(None, said), f"  then: overrun report {where}\n"])


def _as_seen(address: str | None, host: str) -> str | None:
    """HOST:PORT with `host` where the server listens at every address of its machine."""
    if address is None:
        return None
    bound, _, port = address.rpartition(":")
    return f"{host}:{port}" if bound in _EVERY_ADDRESS else address
