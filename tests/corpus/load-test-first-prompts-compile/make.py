"""A benchmark right after the start: each run's first prompts wait while kernels are compiled, all others are quick; three concurrencies."""

import json
import random
from pathlib import Path


def make(folder: Path) -> None:
    for concurrency, steady, pace in ((1, 58.0, 9.0), (4, 66.0, 9.6), (8, 79.0, 10.5)):
        draw = random.Random(83 + concurrency)
        cold = 1 if concurrency == 1 else concurrency
        ttfts, itls, starts, at = [], [], [], [0.0] * concurrency
        for n in range(200):
            slot = min(range(concurrency), key=lambda i: at[i])
            ttft = draw.lognormvariate(0, 0.1) * (
                1_540.0 + 90 * concurrency if n < cold else steady
            )
            out = [pace * draw.lognormvariate(0, 0.08) for _ in range(127)]
            starts.append(1_790_000_000 + at[slot])
            at[slot] += (ttft + sum(out)) / 1e3
            ttfts.append(ttft / 1e3)
            itls.append([one / 1e3 for one in out])
        run = {
            "date": "20260921-141320",
            "endpoint_type": "vllm",
            "label": None,
            "model_id": "llama-3.1-8b",
            "tokenizer_id": "llama-3.1-8b",
            "num_prompts": 200,
            "request_rate": "inf",
            "burstiness": 1.0,
            "max_concurrency": concurrency,
            "duration": max(at),
            "completed": 200,
            "total_input_tokens": 200 * 512,
            "total_output_tokens": 200 * 128,
            "request_throughput": 200 / max(at),
            "output_throughput": 25_600 / max(at),
            "input_lens": [512] * 200,
            "output_lens": [128] * 200,
            "ttfts": ttfts,
            "itls": itls,
            "start_times": starts,
            "generated_texts": [""] * 200,
            "errors": [""] * 200,
        }
        (folder / "runs").mkdir(exist_ok=True)
        (folder / "runs" / f"vllm-infqps-concurrency{concurrency}.json").write_text(json.dumps(run))
