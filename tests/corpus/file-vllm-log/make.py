"""The log of `vllm serve`: a line of figures every ten seconds between lines of its web server."""

from pathlib import Path

LINE = (
    "(APIServer pid=3646) INFO 05-19 {clock} [loggers.py:271] Engine 000: Avg prompt throughput: {read:.1f} tokens/s, "
    "Avg generation throughput: {written:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, "
    "GPU KV cache usage: {usage:.1f}%, Prefix cache hit rate: {hits:.1f}%"
)


def make(folder: Path) -> None:
    lines = ["INFO 05-19 09:58:02 [__init__.py:244] Automatically detected platform cuda."]
    for at in range(90):
        clock = f"10:{at // 6:02d}:{at % 6 * 10 + 1:02d}"
        later = at >= 40
        lines.append(
            LINE.format(
                clock=clock,
                read=2_400.0 if not later else 900.0,
                written=820.5 if not later else 1_100.0,
                running=9 if not later else 18,
                waiting=0 if not later else 33 + at % 10,
                usage=48.0 + at * 0.3 if not later else 95.0 + at % 4,
                hits=41.0,
            )
        )
        lines.append(
            '(APIServer pid=3646) INFO:     10.0.0.7:59146 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
        )
    (folder / "vllm.log").write_text("\n".join(lines) + "\n")
