"""Keep what senders send: OTLP over HTTP and metrics pages, as files and forwarded to a running collector."""

from __future__ import annotations

import gzip
import threading
import time
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from overrun.collector.sources import prometheus

SCRAPE_S = 5.0


class Capture:
    """Receives on one port. `folder` is the phase that is being captured, None between phases."""

    def __init__(self, port: int, forward_to: str | None) -> None:
        self.port, self.forward_to = port, forward_to
        self.folder: Path | None = None
        self.engines: dict[str, str] = {}  # instance -> base URL
        self.files = 0
        self.refused = 0
        self._stop = threading.Event()
        self._client = httpx.Client(timeout=10)
        routes = [Route("/v1/{signal}", self._receive, methods=["POST"])]
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning"
        )
        self._server = uvicorn.Server(config)
        self._threads = [
            threading.Thread(target=self._server.run, daemon=True),
            threading.Thread(target=self._scrape, daemon=True),
        ]

    @property
    def url(self) -> str:
        """Where senders send to."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen and scrape in threads of their own."""
        for thread in self._threads:
            thread.start()
        while not self._server.started:
            time.sleep(0.05)

    def stop(self) -> None:
        """End both threads."""
        self._stop.set()
        self._server.should_exit = True
        for thread in self._threads:
            thread.join(timeout=10)
        self._client.close()

    def _keep(self, signal: str, body: bytes) -> None:
        if self.folder is None:
            return
        self.files += 1
        path = self.folder / f"{time.time_ns() // 1_000_000}-{self.files:05d}.{signal}.pb.gz"
        path.write_bytes(gzip.compress(body, 3))

    async def _receive(self, request: Request) -> Response:
        body = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        signal = request.path_params["signal"]
        self._keep(signal, body)
        self._forward(signal, body)
        return Response(b"", media_type="application/x-protobuf")

    def _forward(self, signal: str, body: bytes) -> None:
        if self.forward_to is None:
            return
        try:
            answer = self._client.post(
                f"{self.forward_to}/v1/{signal}",
                content=body,
                headers={"content-type": "application/x-protobuf"},
            )
            self.refused += answer.status_code >= 300
        except httpx.HTTPError:
            self.refused += 1

    def _scrape(self) -> None:
        while not self._stop.wait(SCRAPE_S):
            for instance, url in list(self.engines.items()):
                try:
                    page = self._client.get(url + "/metrics", timeout=4.0).text
                except httpx.HTTPError:
                    continue
                families = prometheus.parse(page)
                body = prometheus.request(
                    families,
                    service=prometheus.service_of(families) or "vllm",
                    instance=instance,
                    time_ns=time.time_ns(),
                )
                self._keep("metrics", body)
