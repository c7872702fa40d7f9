"""Ten requests a scrape of about 1.5 s at the provider; the proxy's own part is 20 ms, then 2.2 s."""

from bisect import bisect_left
from pathlib import Path

from tests.analysis.diagnosis.engine_pages import write

EDGES = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0),
    *(7.5, 10.0),
)
MODEL = 'model="gpt-4o",hashed_api_key="k",api_key_alias="app",team="t",user="u"'


def histogram(name: str, before: float, after: float, step: int, labels: str) -> str:
    quiet, late = 10 * min(step, 20), 10 * max(step - 20, 0)
    counts = [0] * (len(EDGES) + 1)
    for times, value in ((quiet, before), (late, after)):
        counts[bisect_left(EDGES, value)] += times
    lines, below = [f"# TYPE {name} histogram"], 0
    for edge, n in zip((*EDGES, "+Inf"), counts, strict=True):
        below += n
        lines.append(f'{name}_bucket{{le="{edge}",{labels}}} {below}')
    return "\n".join(
        [
            *lines,
            f"{name}_count{{{labels}}} {below}",
            f"{name}_sum{{{labels}}} {quiet * before + late * after:.3f}",
            "",
        ]
    )


def page(step: int) -> str:
    return (
        histogram("litellm_request_total_latency_metric", 1.48, 3.8, step, MODEL)
        + histogram("litellm_llm_api_latency_metric", 1.46, 1.46, step, MODEL)
        + histogram(
            "litellm_overhead_latency_metric",
            0.02,
            2.2,
            step,
            'model_group="gpt-4o",api_provider="openai",litellm_model_name="gpt-4o"',
        )
        + "# TYPE litellm_proxy_total_requests_metric_total counter\n"
        + f'litellm_proxy_total_requests_metric_total{{{MODEL},status_code="200"}} {10 * step}\n'
    )


def make(folder: Path) -> None:
    write(folder / "pages" / "litellm", page)
