"""An agent that recalls before it answers; the recall's steps are spans of the memory's own, without a known attribute."""

from pathlib import Path

from tests.corpus.app_world import Trace, posted, requests, served, written

MEMORY = {"service": "hindsight-api"}


def serve(trace: Trace) -> None:
    with trace.within("POST /agent", **served("/agent")):
        with (
            trace.within(
                "POST", **posted("http://memory:8888/v1/default/banks/main/memories/recall")
            ),
            trace.within(
                "POST /v1/default/banks/{bank_id}/memories/recall",
                **MEMORY,
                **served("/v1/default/banks/{bank_id}/memories/recall"),
            ),
            trace.within("hindsight.recall", **MEMORY),
        ):
            trace.step("hindsight.recall.generate_query_embedding", trace.about(330, 0.1), **MEMORY)
            trace.step("hindsight.recall.parallel_retrieval", trace.about(60, 0.2), **MEMORY)
            trace.step(
                "hindsight.recall.rerank",
                trace.about(107_000 if trace.later else 900, 0.1),
                **MEMORY,
            )
        trace.chat(trace.about(700), trace.about(3_000))


def make(folder: Path) -> None:
    written(folder, requests(serve, n=300, every_ms=60_000, seed=82))
