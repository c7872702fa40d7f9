"""vLLM's page and DCGM's of its node: someone caps the GPUs' power, clocks fall and tokens come a third more slowly at the same load."""

import random
from pathlib import Path

from tests.corpus.engine_world import EVERY_S, START, Page, pages


def make(folder: Path) -> None:
    draw = random.Random(104)

    def at(step: int, page: Page) -> None:
        later = step >= 60
        slow = 1.52 if later else 1.0
        page.requests(
            12,
            read=1_800,
            output=400,
            ttft_s=(0.25 * slow, 0.6 * slow),
            queue_s=(0.0, 0.02),
            prefill_s=(0.2 * slow, 0.5 * slow),
            decode_s=(9.0 * slow, 11.5 * slow),
        )
        page.level("num_requests_running", 8 if not later else 12)
        page.level("num_requests_waiting", 0)
        page.level("kv_cache_usage_perc", 0.35)

    pages(folder / "pages" / "vllm-0", at)
    node = folder / "pages" / "dcgm-0"
    node.mkdir(parents=True)
    for step in range(120):
        later = step >= 60
        lines = []
        for gpu in (0, 1):
            labels = f'gpu="{gpu}",UUID="GPU-{gpu}",device="nvidia{gpu}",modelName="NVIDIA GeForce RTX 3090",Hostname="node-0"'
            for name, value in (
                ("SM_CLOCK", draw.uniform(1_360, 1_400) if later else draw.uniform(1_860, 1_920)),
                ("POWER_USAGE", draw.uniform(226, 230) if later else draw.uniform(355, 385)),
                ("GPU_TEMP", draw.uniform(52, 58)),
                ("GPU_UTIL", draw.uniform(94, 99)),
            ):
                lines += [
                    f"# TYPE DCGM_FI_DEV_{name} gauge",
                    f"DCGM_FI_DEV_{name}{{{labels}}} {value:.0f}",
                ]
        (node / f"{START + step * EVERY_S}.prom").write_text("\n".join([*lines, ""]))
