"""Ray Serve: another prefix, no _total, the replica in a label."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import page, write

RAY = 'Component="core_worker",NodeAddress="10.0.0.3",ReplicaId="abc123",WorkerId="f00d",deployment="LLMServer:qwen",engine="0"'


def make(folder: Path) -> None:
    write(
        folder / "pages" / "gpu0",
        lambda step: page(step, slow_from=20, waiting=12.0, prefix="ray_vllm_", labels=RAY).replace(
            "_tokens_total", "_tokens"
        ),
    )
