"""An agent in a queue's worker that asks Bedrock through the AWS SDK: client spans of an RPC, and a client of HTTP in each."""

from pathlib import Path

from tests.corpus.app_world import Trace, posted, requests, written
from tests.corpus.otlp import CLIENT, CONSUMER


def serve(trace: Trace) -> None:
    with trace.within("jobs process", kind=CONSUMER, attributes={"messaging.system": "sqs"}):
        trace.step("SELECT documents", trace.about(60), kind=CLIENT, attributes={"db.system": "pg"})
        rpc = {"rpc.system": "aws-api", "rpc.service": "Bedrock Runtime", "rpc.method": "Converse"}
        with trace.within("Bedrock Runtime.Converse", kind=CLIENT, attributes=rpc):
            url = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/claude-small/converse"
            trace.step("POST", trace.about(5_000 if trace.later else 1_500), **posted(url))


def make(folder: Path) -> None:
    written(folder, requests(serve, n=400, seed=72))
