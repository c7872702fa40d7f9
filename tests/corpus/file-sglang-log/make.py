"""The log of SGLang's server: a line for each batch that it reads, and for every fortieth step in which it writes."""

from pathlib import Path


def make(folder: Path) -> None:
    lines = []
    for at in range(240):
        clock = f"2026-05-27 20:{10 + at * 5 // 60:02d}:{at * 5 % 60:02d}"
        later = at >= 120
        queue = 0 if not later else 40 + at % 20
        usage, running = (0.41, 12) if not later else (0.97, 30)
        busy = f"token usage: {usage:.2f}"
        lines += [
            f"[{clock}] Prefill batch. #new-seq: 2, #new-token: 2048, #cached-token: 512, {busy}, #running-req: {running}, #queue-req: {queue},",
            f"[{clock} TP0] Decode batch. #running-req: {running}, #token: 16384, {busy}, cuda graph: True, gen throughput (token/s): 2520.18, #queue-req: {queue},",
            f'[{clock}] INFO:     127.0.0.1:54504 - "POST /generate HTTP/1.1" 200 OK',
        ]
    (folder / "sglang.log").write_text("\n".join(lines) + "\n")
