"""An exporter in front of Ollama."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import write


def make(folder: Path) -> None:
    def ollama(step: int) -> str:
        upto = {"1": 0, "10": 0, "30": 10 * step, "+Inf": 10 * step}
        buckets = "".join(
            f'ollama_response_seconds_bucket{{le="{edge}",model="m"}} {count}\n'
            for edge, count in upto.items()
        )
        return (
            f'# TYPE ollama_response_seconds histogram\n{buckets}ollama_response_seconds_count{{model="m"}} {10 * step}\n'
            f'# TYPE ollama_tokens_generated_total counter\nollama_tokens_generated_total{{model="m"}} {1_500 * step}\n'
            f"# TYPE ollama_active_requests gauge\nollama_active_requests 1\n# TYPE ollama_request_queue_length gauge\nollama_request_queue_length 12\n"
        )

    write(folder / "pages" / "gpu0", ollama)
