"""What does `streamlit run` serve? The pages as an ASGI app: compressed, with its own health route and errors in the log instead of the page."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import streamlit as st
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

log = logging.getLogger("overrun.dashboard")


def _warm() -> None:
    """Import what the pages need before the first visitor waits for it."""
    import plotly.graph_objects

    import dashboard.views.budget
    import dashboard.views.traces
    import dashboard.views.verdict  # noqa: F401

    plotly.graph_objects.Figure({}, _validate=False)


@asynccontextmanager
async def _lifespan(app: Any) -> AsyncIterator[None]:
    threading.Thread(target=_warm, daemon=True, name="warm").start()
    yield


def _on_script_error(error: Exception) -> bool:
    """A page that failed: the log says why, the visitor gets a sentence and no trace of the program."""
    log.error("a page failed", exc_info=error)
    st.error("This page could not be drawn; the dashboard's log says why. Reload it, or widen the window.")
    return True


app = st.App(
    Path(__file__).with_name("app.py"), lifespan=_lifespan, on_script_error=_on_script_error,
    middleware=[Middleware(GZipMiddleware, minimum_size=1024, compresslevel=5)])
