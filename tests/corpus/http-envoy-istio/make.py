"""Istio's sidecars around a gateway of models: names are hosts of the mesh, attributes Envoy's; the words in a host's name are nobody's work."""

from pathlib import Path

from tests.corpus.otlp import chat, resource, span, write


def envoy(url: str, cluster: str) -> dict[str, str]:
    return {
        "node_id": "sidecar~10.0.0.7~app",
        "component": "proxy",
        "http.method": "POST",
        "http.url": url,
        "http.protocol": "HTTP/1.1",
        "http.status_code": "200",
        "response_flags": "-",
        "upstream_cluster": cluster,
        "upstream_cluster.name": cluster,
        "peer.address": "10.0.0.9",
        "guid:x-request-id": "b1",
        "user_agent": "httpx",
        "request_size": "512",
        "response_size": "2048",
    }


def make(folder: Path) -> None:
    edge, app = [], []
    for n in range(4):
        at = 10_000 * n
        edge += [
            span(
                n,
                "ingress",
                at,
                3_000,
                "server in",
                envoy("https://chat.acme.example/api/chat?stream=1", "outbound|80||app"),
            ),
            span(
                n,
                "router output-api.default.svc.cluster.local egress",
                at + 5,
                2_990,
                "client out < in",
                envoy(
                    "http://output-api/api/chat",
                    "outbound|80||output-api.default.svc.cluster.local",
                ),
            ),
        ]
        app += [
            span(
                n,
                "POST /api/chat",
                at + 10,
                2_980,
                "server app < out",
                {
                    "http.request.method": "POST",
                    "http.route": "/api/chat",
                    "http.response.status_code": 200,
                },
            ),
            span(
                n,
                "prompt-store.default.svc.cluster.local:8080/*",
                at + 30,
                600,
                "client store < app",
                envoy(
                    "http://prompt-store:8080/read",
                    "outbound|8080||prompt-store.default.svc.cluster.local",
                ),
            ),
            chat(n, at + 700, 2_200, parent="app"),
        ]
    write(
        folder / "traces.json",
        resource("istio-ingressgateway", edge, "envoy"),
        resource("app", app, "envoy"),
    )
