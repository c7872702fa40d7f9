"""What does `streamlit run` serve? The pages as an ASGI app: compressed, with its own health route and errors in the log instead of the page."""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from overrun.dashboard import data, nav
from overrun.dashboard.assets import EVERYWHERE, FIGURES, Assets, ServeAssets
from overrun.dashboard.first_paint import FirstAnswer
from overrun.dashboard.launch import ARTIFACT_VARIABLE

log = logging.getLogger("overrun.dashboard")


def _warm() -> None:
    """Make ready what the pages need before the first visitor waits for it: their code, the browser's program, and the server's."""
    import plotly.graph_objects

    _ASSETS.warm([*EVERYWHERE, *FIGURES])
    data.expect({})
    data.ahead(data.fixes, data.rehearse)

    for place in nav.PLACES:
        import_module(f"overrun.dashboard.views.{place.name}")
    plotly.graph_objects.Figure({}, _validate=False)
    # Streamlit collects garbage after every run of a script: looking through all that was imported took 70 of its 100 ms of CPU.
    gc.collect()
    gc.freeze()


@asynccontextmanager
async def _lifespan(app: Any) -> AsyncIterator[None]:
    threading.Thread(target=_warm, daemon=True, name="warm").start()
    yield


def _on_script_error(error: Exception) -> bool:
    """A page that failed: the log says why, the visitor gets a sentence and no trace of the program."""
    log.error("a page failed", exc_info=error)
    st.error(
        "This page could not be drawn: see the dashboard's log. Reload the page, or widen the window."
    )
    return True


class QuietProbes:
    """Answers the browser's question whether the app lives below a page's own address (`/budget/_stcore/health`): it does not.

    Streamlit asks it on every deep link and takes any failure for a no; its own 404 would stand as an error in the visitor's console, and a
    304 is a no that browsers do not report.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and scope["path"].partition("/_stcore/")[0] in _PAGES
            and "/_stcore/" in scope["path"]
        ):
            await send({"type": "http.response.start", "status": 304, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._app(scope, receive, send)


class OwnAddresses:
    """Sends a client for a page by another spelling of its name to its address, filters kept.

    The first page's own name is one: Streamlit knows it at `/` alone, and would say over it that there is no such page.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = (
            _ADDRESS_OF.get(scope["path"].strip("/").lower()) if scope["type"] == "http" else None
        )
        if address is None or scope["path"] == address:
            await self._app(scope, receive, send)
            return
        query = scope["query_string"]
        location = (
            scope.get("root_path", "").encode()
            + address.encode()
            + (b"?" + query if query else b"")
        )
        await send(
            {
                "type": "http.response.start",
                "status": 307,
                "headers": [(b"location", location), (b"content-length", b"0")],
            }
        )
        await send({"type": "http.response.body", "body": b""})


_ADDRESS_OF = {
    name: "/" if place is nav.PLACES[0] else f"/{place.name}"
    for place in nav.PLACES
    for name in (place.name, place.title.lower(), place.title.lower().replace(" ", "-"))
}
_PAGES = frozenset(f"/{place.name}" for place in nav.PLACES)
_ADDRESSES = _PAGES | {"/"}
# Without an artifact the page of lengths has nothing to draw.
_EMPTY = () if os.environ.get(ARTIFACT_VARIABLE) else ("length",)
_FIGURES = frozenset(
    f"/{place.name}" for place in nav.PLACES if place.charts and place.name not in _EMPTY
)
_ASSETS = Assets()

app = st.App(
    Path(__file__).with_name("app.py"),
    lifespan=_lifespan,
    on_script_error=_on_script_error,
    middleware=[
        Middleware(GZipMiddleware, minimum_size=1024, compresslevel=5),
        Middleware(QuietProbes),
        Middleware(OwnAddresses),
        Middleware(FirstAnswer),
        Middleware(ServeAssets, assets=_ASSETS, pages=_ADDRESSES, figures=_FIGURES),
    ],
)
