"""The page of an SGLang engine that writes: requests wait for the KV cache that another engine sends."""

from pathlib import Path

from tests.corpus.engine_world import EVERY_S, START

NAMES = {
    "num_running_reqs": lambda at: 20 if at < 60 else 9,
    "num_queue_reqs": lambda at: 0,
    "num_decode_prealloc_queue_reqs": lambda at: 0 if at < 60 else 4,
    "num_decode_transfer_queue_reqs": lambda at: 1 if at < 60 else 90 + at,
    "token_usage": lambda at: 0.5 if at < 60 else 0.3,
}


def make(folder: Path) -> None:
    out = folder / "pages" / "decode-0"
    out.mkdir(parents=True)
    for at in range(120):
        lines = []
        for name, value in NAMES.items():
            lines += [
                f"# TYPE sglang:{name} gauge",
                f'sglang:{name}{{model_name="m",engine_type="decode"}} {value(at)}',
            ]
        lines += [
            "# TYPE sglang:generation_tokens_total counter",
            f'sglang:generation_tokens_total{{model_name="m"}} {at * 9_000 if at < 60 else 540_000 + (at - 60) * 4_000}',
        ]
        (out / f"{START + at * EVERY_S}.prom").write_text("\n".join([*lines, ""]))
