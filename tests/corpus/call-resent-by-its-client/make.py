"""Model calls whose client says how often it sent the request again, with nothing inside."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written


def serve(trace: Trace) -> None:
    again = trace.later and trace.draw.random() < 0.25
    with trace.within("POST /draft", **served("/draft")):
        ttft = trace.about(450) + (trace.about(3_600) if again else 0)
        trace.chat(
            ttft, ttft + trace.about(1_400), **({"http__request__resend_count": 2} if again else {})
        )


def make(folder: Path) -> None:
    written(folder, requests(serve, seed=73))
