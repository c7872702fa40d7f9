"""A shop without any model: a gateway, an inventory service behind it, a worker on a queue, and a platform that asks whether they live."""

from pathlib import Path

from tests.corpus.app_world import Trace, posted, requests, served, written
from tests.corpus.otlp import CLIENT, CONSUMER, SERVER


def serve(trace: Trace) -> None:
    slow = 900 if trace.later else 60
    if trace.draw.random() < 0.3:
        trace.step("GET /healthz", 1.0, kind=SERVER, attributes={"http.route": "/healthz"})
        return
    if trace.draw.random() < 0.2:
        told = {"messaging.system": "rabbitmq", "messaging.operation.type": "process"}
        with trace.within("orders process", kind=CONSUMER, service="worker", attributes=told):
            trace.now += trace.about(200)
        return
    with trace.within("POST /cart", service="gateway", **served("/cart")):
        trace.now += trace.about(10)
        with (
            trace.within("POST", service="gateway", **posted("http://inventory/reserve")),
            trace.within("POST /reserve", service="inventory", **served("/reserve")),
        ):
            told = {"db.system": "postgresql", "db.operation.name": "SELECT"}
            trace.step(
                "SELECT stock", trace.about(slow), kind=CLIENT, service="inventory", attributes=told
            )


def make(folder: Path) -> None:
    written(folder, requests(serve, n=700, seed=73))
