"""text-embeddings-inference: its queue is of embeddings."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import write


def make(folder: Path) -> None:
    def tei(step: int) -> str:
        buckets = "".join(
            f'te_request_duration_bucket{{le="{edge}"}} {10 * step if edge in ("5", "+Inf") else 0}\n'
            for edge in ("0.1", "1", "5", "+Inf")
        )
        return (
            f"# TYPE te_queue_size gauge\nte_queue_size 7\n# TYPE te_request_success counter\nte_request_success {10 * step}\n"
            f"# TYPE te_request_duration histogram\n{buckets}te_request_duration_count {10 * step}\n"
        )

    write(folder / "pages" / "tei", tei)
