"""vLLM's KV cache fills: requests are thrown out and start again, the queue grows, and fewer tokens are made than before."""

from pathlib import Path

from tests.corpus.engine_world import Page, pages


def at(step: int, page: Page) -> None:
    later = step >= 60
    page.requests(
        14 if not later else 6,
        read=3_000,
        output=500,
        ttft_s=(0.3, 0.8) if not later else (9.0, 38.0),
        queue_s=(0.0, 0.1) if not later else (8.0, 36.0),
        prefill_s=(0.3, 0.7) if not later else (0.8, 2.0),
        decode_s=(9.0, 14.0) if not later else (20.0, 39.0),
    )
    page.count("num_preemptions_total", 9 if later else 0)
    page.level("num_requests_running", 12 if not later else 18)
    page.level("num_requests_waiting", 0 if not later else 20 + (step - 60) // 2)
    page.level(
        "kv_cache_usage_perc", 0.55 + step * 0.004 if not later else 0.985 + 0.01 * (step % 2)
    )


def make(folder: Path) -> None:
    pages(folder / "pages" / "vllm-0", at)
