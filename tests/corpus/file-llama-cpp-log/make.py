"""The log of llama.cpp's server: the times of each answer, without any time of day."""

from pathlib import Path


def make(folder: Path) -> None:
    lines = ["main: server is listening on http://127.0.0.1:8080 - starting the main loop"]
    for task in range(40):
        lines += [
            f"slot launch_slot_: id  0 | task {task} | processing task",
            f"slot print_timing: id  0 | task {task} | ",
            "prompt eval time =    2441.22 ms /   161 tokens (   15.16 ms per token,    65.95 tokens per second)",
            "       eval time =    9899.35 ms /   250 tokens (   39.52 ms per token,    25.30 tokens per second)",
            "      total time =   12340.57 ms /   411 tokens",
            "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200",
        ]
    (folder / "llama.log").write_text("\n".join(lines) + "\n")
