"""llama.cpp's server: no histogram and no count of requests."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import write


def make(folder: Path) -> None:
    def llama(step: int) -> str:
        waiting = 12 if step > 20 else 0
        return (
            f"# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total {6_000 * step}\n"
            f"# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total {1_500 * step}\n"
            f"# TYPE llamacpp:tokens_predicted_seconds_total counter\nllamacpp:tokens_predicted_seconds_total {37.5 * step}\n"
            f"# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 4\n"
            f"# TYPE llamacpp:requests_deferred gauge\nllamacpp:requests_deferred {waiting}\n"
        )

    write(folder / "pages" / "gpu0", llama)
