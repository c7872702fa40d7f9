"""vLLM's pages: 15 minutes in which nine tenths of the prompt tokens come from the prefix cache, then an upgrade after which none do."""

from pathlib import Path

from tests.corpus.engine_world import Page, pages


def at(step: int, page: Page) -> None:
    later = step >= 60
    page.requests(
        10,
        read=6_400,
        output=100,
        ttft_s=(1.0, 1.6) if not later else (2.6, 4.4),
        queue_s=(0.0, 0.2),
        prefill_s=(0.9, 1.5) if not later else (2.5, 4.2),
        decode_s=(3.0, 4.5),
    )
    page.count("prefix_cache_queries_total", 64_000)
    page.count("prefix_cache_hits_total", 0 if later else 57_600)
    page.level("num_requests_running", 9 if not later else 14)
    page.level("num_requests_waiting", 0)
    page.level("kv_cache_usage_perc", 0.35)


def make(folder: Path) -> None:
    pages(folder / "pages" / "vllm-0", at)
