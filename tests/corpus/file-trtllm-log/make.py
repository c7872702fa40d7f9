"""Two minutes of iterations, written by an older version and then by a newer one."""

from datetime import UTC, datetime
from pathlib import Path

T0 = 1_790_000_000


def make(folder: Path) -> None:
    lines = []
    for n in range(120):
        at = datetime.fromtimestamp(T0 + n, UTC)
        running, read = 24 + n % 5, 3_000 if n % 10 == 5 else 0
        states = f"states = {{'num_ctx_requests': {int(read > 0)}, 'num_ctx_tokens': {read}, 'num_generation_tokens': {running}}}"
        seats = (
            f"currank_total_requests = 1/8, host_step_time = 15.1ms, prev_device_step_time = 14.0ms, timestamp = {at:%Y-%m-%d %H:%M:%S}, num_scheduled_requests: {running}"
            if n < 60
            else f"num_scheduled_requests = {running}, kv_cache_util = 0.5, currank_total_requests = 1/8, host_step_time = 15.1ms, timestamp = {at:%Y-%m-%d %H:%M:%S}"
        )
        lines.append(
            f"[{at:%m/%d/%Y-%H:%M:%S}] [TRT-LLM] [I] iter = {n}, global_rank = 0, rank = 0, {seats}, {states}\n"
        )
    (folder / "trtllm.log").write_text("".join(lines))
