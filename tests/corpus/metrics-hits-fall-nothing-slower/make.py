"""vLLM's pages by night: less comes from the prefix cache and drafts are accepted less often, but nothing is slower."""

from pathlib import Path

from tests.corpus.engine_world import Page, pages


def at(step: int, page: Page) -> None:
    later = step >= 60
    page.requests(
        12 if not later else 4,
        read=2_000,
        output=200,
        ttft_s=(0.3, 0.7),
        queue_s=(0.0, 0.01),
        prefill_s=(0.25, 0.6),
        decode_s=(3.0, 4.0),
    )
    page.count("prefix_cache_queries_total", 24_000)
    page.count("prefix_cache_hits_total", 3_000 if later else 19_000)
    page.count("spec_decode_num_draft_tokens_total", 3_000)
    page.count("spec_decode_num_accepted_tokens_total", 900 if later else 2_200)
    page.level("num_requests_running", 2 if later else 4)
    page.level("num_requests_waiting", 0)
    page.level("kv_cache_usage_perc", 0.2)


def make(folder: Path) -> None:
    pages(folder / "pages" / "vllm-0", at)
