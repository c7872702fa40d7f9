"""vLLM's pages: prompts become ten times as long, and while they are read in pieces, tokens of everybody come late."""

from pathlib import Path

from tests.corpus.engine_world import Page, pages


def at(step: int, page: Page) -> None:
    later = step >= 60
    page.requests(
        10,
        read=20_000 if later else 2_000,
        output=300,
        ttft_s=(2.0, 4.5) if later else (0.3, 0.5),
        queue_s=(0.0, 0.05),
        prefill_s=(2.0, 4.3) if later else (0.25, 0.45),
        decode_s=(14.0, 22.0) if later else (4.5, 6.0),
    )
    page.count("num_preemptions_total", 0)
    page.level("num_requests_running", 13 if later else 4)
    page.level("num_requests_waiting", 0)
    page.level("kv_cache_usage_perc", 0.5 if later else 0.12)


def make(folder: Path) -> None:
    pages(folder / "pages" / "vllm-0", at)
