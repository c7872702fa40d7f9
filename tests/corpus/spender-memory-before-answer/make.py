"""A voice bot stores each turn in Mem0 and waits for it before the model is asked; its API becomes slow since each write extracts facts with a model."""

from pathlib import Path

from tests.corpus.app_world import Trace, posted, requests, served, written


def serve(trace: Trace) -> None:
    with trace.within("POST /turn", **served("/turn")):
        trace.now += trace.about(12)
        with trace.within(
            "Mem0MemoryService.process_frame", attributes={"code.function.name": "process_frame"}
        ):
            trace.step(
                "POST",
                trace.about(7_500, 0.35) if trace.later else trace.about(190, 0.3),
                **posted("https://api.mem0.ai/v1/memories/"),
            )
            trace.step(
                "POST", trace.about(160, 0.3), **posted("https://api.mem0.ai/v1/memories/search/")
            )
        output = int(trace.about(60, 0.4))
        first = trace.about(480)
        trace.chat(
            first,
            first + output * 10.0,
            read=int(trace.about(1_900)),
            output=output,
            model="gpt-4o",
        )


def make(folder: Path) -> None:
    written(folder, requests(serve, n=500, every_ms=3_500, seed=105))
