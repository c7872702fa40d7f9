"""vLLM with drafts of three tokens: after an upgrade hardly one of ten is accepted, and tokens take twice as long."""

from pathlib import Path

from tests.corpus.engine_world import Page, pages


def at(step: int, page: Page) -> None:
    later = step >= 60
    output, accepted = 400, 0.08 if later else 0.72
    page.requests(
        12,
        read=1_500,
        output=output,
        ttft_s=(0.3, 0.7),
        queue_s=(0.0, 0.02),
        prefill_s=(0.25, 0.6),
        decode_s=(13.0, 17.0) if later else (6.0, 8.0),
    )
    steps = 12 * output / (1 + 3 * accepted)
    page.count("spec_decode_num_drafts_total", steps)
    page.count("spec_decode_num_draft_tokens_total", 3 * steps)
    page.count("spec_decode_num_accepted_tokens_total", 3 * steps * accepted)
    page.level("num_requests_running", 12 if later else 6)
    page.level("num_requests_waiting", 0)
    page.level("kv_cache_usage_perc", 0.3)


def make(folder: Path) -> None:
    pages(folder / "pages" / "vllm-0", at)
