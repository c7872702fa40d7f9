"""Ten requests a scrape, of which a fifth wait for 5 to 10 s."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import write

EDGES = ("0.5", "1", "2.5", "5", "10", "+Inf")


def histogram(name: str, step: int) -> str:
    cumulative = [2 * step * at for at in (1, 2, 3, 4, 5, 5)]
    lines = [
        f'{name}_bucket{{gen_ai_request_model="m",le="{edge}"}} {n}'
        for edge, n in zip(EDGES, cumulative, strict=True)
    ]
    return "\n".join(
        [
            f"# TYPE {name} histogram",
            *lines,
            f'{name}_sum{{gen_ai_request_model="m"}} {30 * step}',
            f'{name}_count{{gen_ai_request_model="m"}} {10 * step}',
            "",
        ]
    )


def number(name: str, value: float, kind: str = "counter") -> str:
    return f'# TYPE {name} {kind}\n{name}{{model="m"}} {value}\n'


def make(folder: Path) -> None:
    higress = "route_upstream_model_consumer_metric_"
    write(
        folder / "sglang" / "gw",
        lambda step: (
            histogram("smg_router_ttft_seconds", step)
            + histogram("smg_router_request_duration_seconds", step)
            + number("smg_worker_requests_active", 9, "gauge")
        ),
    )
    write(
        folder / "agentgateway" / "gw",
        lambda step: (
            histogram("agentgateway_gen_ai_server_time_to_first_token", step)
            + histogram("agentgateway_gen_ai_server_request_duration", step)
        ),
    )
    write(
        folder / "higress" / "gw",
        lambda step: "".join(
            number(f"{higress}{name}", value * step)
            for name, value in (
                ("llm_first_token_duration", 12_000),
                ("llm_service_duration", 40_000),
                ("llm_stream_duration_count", 10),
                ("llm_duration_count", 10),
                ("output_token", 1_000),
            )
        ),
    )
    write(
        folder / "xinference" / "worker",
        lambda step: (
            number("xinference:input_tokens_total_counter", 3_000 * step)
            + number("xinference:output_tokens_total_counter", 1_500 * step)
            + number("xinference:generate_tokens_per_s", 90, "gauge")
        ),
    )
