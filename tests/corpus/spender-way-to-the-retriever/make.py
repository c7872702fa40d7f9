"""A retriever behind gRPC: its own work is as quick as ever, but calls take two seconds to reach it."""

from pathlib import Path

from tests.corpus.app_world import Trace, requests, served, written
from tests.corpus.otlp import CLIENT, SERVER

CALL = {"rpc.system": "grpc", "rpc.service": "Retriever", "rpc.method": "Search"}


def serve(trace: Trace) -> None:
    with trace.within("POST /ask", **served("/ask")):
        with trace.within(
            "Retriever/Search",
            kind=CLIENT,
            attributes=CALL | {"server.address": "retriever.rag.svc"},
        ):
            trace.now += trace.about(2_100 if trace.later else 4)
            trace.step(
                "Retriever/Search",
                trace.about(45),
                kind=SERVER,
                service="retriever",
                attributes=CALL,
            )
            trace.now += 2
        trace.chat(trace.about(300), trace.about(1_200))


def make(folder: Path) -> None:
    written(folder, requests(serve, seed=74))
