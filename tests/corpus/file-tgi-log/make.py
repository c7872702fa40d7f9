"""The log of text-generation-inference's router: a line a request with its times as Rust prints them, between other lines."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

T0 = datetime(2026, 9, 21, 8, 0, tzinfo=UTC)


def make(folder: Path) -> None:
    lines = [
        "2026-09-21T07:59:50.317182Z  INFO text_generation_router::server: router/src/server.rs:2402: Connected"
    ]
    for number in range(80):
        late = number >= 40
        end = T0 + timedelta(seconds=2 * number)
        whole, queue = ("6.102s", "4.5s") if late else ("1.602s", "127.337µs")
        lines.append(
            f'{end.strftime("%Y-%m-%dT%H:%M:%S.%f")}Z  INFO chat_completions{{total_time="{whole}" validation_time="755.5µs" '
            f'queue_time="{queue}" inference_time="1.6s" time_per_token="40ms" seed="Some(13465365087046561476)"}}: '
            "text_generation_router::server: router/src/server.rs:622: Success"
        )
    (folder / "tgi.log").write_text("\n".join(lines) + "\n")
