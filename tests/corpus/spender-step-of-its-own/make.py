"""An application with spans of its own making: a step inside another one, which no instrumentation knows, becomes slow."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written


def serve(trace: Trace) -> None:
    with trace.within("POST /ask", **served("/ask")):
        with trace.within("prepare_context"):
            trace.step("load_profile", trace.about(30))
            trace.step(
                "expand_synonyms",
                trace.about(1_900 if trace.later else 25),
                attributes={"terms": 12},
            )
        trace.chat(trace.about(300), trace.about(1_200))
        trace.step("add_footer", trace.about(5))


def make(folder: Path) -> None:
    written(folder, requests(serve, seed=71))
