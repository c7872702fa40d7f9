"""Two engines that count 100 and 200 tokens a second, their pages 15 s apart and interleaved by name."""

from pathlib import Path


def make(folder: Path) -> None:
    pages = folder / "pages"
    pages.mkdir()
    for at in range(12):
        for engine, rate in enumerate((100, 200)):
            tokens = 5_000 + rate * 15 * at
            text = (
                "# TYPE vllm:generation_tokens_total counter\n"
                f'vllm:generation_tokens_total{{model_name="m"}} {tokens}\n'
                "# TYPE vllm:num_requests_running gauge\n"
                f'vllm:num_requests_running{{model_name="m"}} {4 + engine}\n'
                "# TYPE vllm:num_requests_waiting gauge\n"
                'vllm:num_requests_waiting{model_name="m"} 0\n'
            )
            (pages / f"gpu{engine}-{1_795_168_800 + 15 * at}.prom").write_text(text)
