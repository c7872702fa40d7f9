"""vLLM comes back with fewer seats: four requests run, the others wait, and the cache is nearly empty."""

from pathlib import Path

from tests.corpus.engine_world import Page, pages


def at(step: int, page: Page) -> None:
    later = step >= 60
    page.requests(
        10,
        read=1_500,
        output=250,
        ttft_s=(5.0, 18.0) if later else (0.2, 0.4),
        queue_s=(4.7, 17.0) if later else (0.0, 0.01),
        prefill_s=(0.15, 0.3),
        decode_s=(5.0, 7.0),
    )
    page.count("num_preemptions_total", 0)
    page.level("num_requests_running", 4 if later else 9 + step % 4)
    page.level("num_requests_waiting", 8 + step % 5 if later else 0)
    page.level("kv_cache_usage_perc", 0.06 if later else 0.15)


def make(folder: Path) -> None:
    pages(folder / "pages" / "vllm-0", at)
