"""llama.cpp's server as it logs in 2026: minutes.seconds.ms.us since its start before each line; first turns from the cache, then all read anew."""

from datetime import UTC, datetime
from pathlib import Path

T0 = 1_790_000_000


def since(s: float) -> str:
    us = round(s * 1e6)
    return f"{us // 60_000_000}.{us // 1_000_000 % 60:02}.{us // 1000 % 1000:03}.{us % 1000:03}"


def make(folder: Path) -> None:
    at, lines = 12.0, []
    for turn in range(80):
        at += 20
        read, prefill = (80_064 + 40 * turn, 36.815) if turn >= 20 else (1_040, 0.513)
        told = [
            f"slot launch_slot_: id  0 | task {turn} | processing task, is_child = 0",
            f"slot update_slots: id  0 | task {turn} | new prompt, n_ctx_slot = 131072, n_keep = 0, task.n_tokens = {80_064 + 40 * turn}",
        ]
        if turn >= 20:
            told.append(
                f"slot update_slots: id  0 | task {turn} | forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory)"
            )
        lines += [(at, line) for line in told]
        at += prefill + 1.824
        lines += [
            (at, line)
            for line in (
                f"slot print_timing: id  0 | task {turn} | prompt eval time = {prefill * 1e3:10.2f} ms / {read:5} tokens "
                f"({prefill * 1e3 / read:8.2f} ms per token, {read / prefill:8.2f} tokens per second)",
                f"slot print_timing: id  0 | task {turn} |        eval time =    1824.19 ms /    90 tokens (   20.27 ms per token,    49.34 tokens per second)",
                f"slot print_timing: id  0 | task {turn} |       total time = {prefill * 1e3 + 1824.19:10.2f} ms / {read + 90:5} tokens",
                f"slot      release: id  0 | task {turn} | stop processing: n_tokens = {80_154 + 40 * turn}, truncated = 0",
                "srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200",
            )
        ]
    (folder / "server.log").write_text("".join(f"{since(t)} I {line}\n" for t, line in lines))
    (folder / "journal.log").write_text(
        "".join(
            f"{datetime.fromtimestamp(T0 + t, UTC):%b %d %H:%M:%S} box llama-server[500563]: {since(t)} I {line}\n"
            for t, line in lines
        )
    )
