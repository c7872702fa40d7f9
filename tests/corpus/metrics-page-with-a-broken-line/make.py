"""An engine's page with a name that its exporter did not escape."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import write


def make(folder: Path) -> None:
    write(
        folder / "pages" / "gpu0",
        lambda step: (
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 4\n"
            'vllm:lora_requests_info{running_lora_adapters="a"b",max_lora="4"} 1\n'
        ),
    )
