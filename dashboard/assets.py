"""How does a browser get the program that runs in it? Streamlit's own files, compressed once and kept, and told of before the page asks for them.

Streamlit leaves its files uncompressed or compresses them again for every visitor: of the 0.5 s of CPU that a first visit cost, most went there, and the
parts that a page needs were only asked for when it was half drawn. The files carry the hash of their content in their names, so they never change.
"""

from __future__ import annotations

import gzip
import mimetypes
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import streamlit
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FOLDER: Final = Path(streamlit.__file__).with_name("static") / "static"
PREFIX: Final = "/static/"
# What every page draws with, and what pages with figures add: names before the hash. A name that a newer Streamlit no longer has is not told of.
EVERYWHERE: Final = (
    "Html",
    "purify.es",
    "Button",
    "Selectbox",
    "useMenuTrigger",
    "Input",
    "useSyncComboBoxEnterTargetFocus",
    "TextInput",
    "PageLink",
    "ButtonGroup",
)
FIGURES: Final = ("PlotlyChart", "withFullScreenWrapper")
_COMPRESSED: Final = frozenset({".woff2", ".woff", ".png", ".gif", ".jpg", ".webp"})
_LEVEL: Final = 9


class Assets:
    """Files under /static/js, /static/css and /static/media by the path that a browser asks for; read and compressed when first wanted."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._paths = {
            f"{PREFIX}{path.relative_to(folder).as_posix()}": path
            for path in folder.rglob("*.*")
            if path.is_file()
        }
        self._kept: dict[str, tuple[bytes, list[tuple[bytes, bytes]]]] = {}
        self._lock = threading.Lock()

    def paths(self, names: Iterable[str]) -> list[str]:
        """The paths of scripts by their names without the hash."""
        found = {
            path.rpartition("/")[2].rsplit(".", 2)[0]: path
            for path in self._paths
            if path.startswith(f"{PREFIX}js/")
        }
        return [found[name] for name in names if name in found]

    def answer(self, path: str) -> tuple[bytes, list[tuple[bytes, bytes]]] | None:
        """The body and headers of a file for a browser that reads gzip, None where there is no such file."""
        file = self._paths.get(unquote(path))
        if file is None:
            return None
        with self._lock:
            if path not in self._kept:
                self._kept[path] = _packed(file)
            return self._kept[path]

    def warm(self, names: Sequence[str]) -> None:
        """Compress what every visitor needs before the first one comes: what the first page names, and these scripts."""
        page = (FOLDER.parent / "index.html").read_text()
        for path in [
            *(path for path in self._paths if path.rpartition("/")[2] in page),
            *self.paths(names),
        ]:
            self.answer(path)


def _packed(file: Path) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    plain = file.read_bytes()
    kind = (
        {".js": "text/javascript", ".woff2": "font/woff2"}.get(file.suffix)
        or mimetypes.guess_type(file.name)[0]
        or "application/octet-stream"
    )
    headers = [
        (b"content-type", kind.encode()),
        (b"cache-control", b"public, immutable, max-age=31536000"),
        (b"x-content-type-options", b"nosniff"),
        (b"vary", b"Accept-Encoding"),
    ]
    if file.suffix in _COMPRESSED:
        return plain, [*headers, (b"content-length", str(len(plain)).encode())]
    small = gzip.compress(plain, _LEVEL, mtime=0)
    return small, [
        *headers,
        (b"content-encoding", b"gzip"),
        (b"content-length", str(len(small)).encode()),
    ]


class ServeAssets:
    """Answers requests for the files, and tells of the parts that a page will need in the answer that carries the page."""

    def __init__(
        self, app: ASGIApp, assets: Assets, pages: frozenset[str], figures: frozenset[str]
    ) -> None:
        """`pages` and `figures` are the addresses of all pages and of those that draw figures."""
        self._app, self._assets, self._pages = app, assets, pages
        self._every = _links(assets.paths(EVERYWHERE), "modulepreload")
        # Fetched but not read: the page's sentence must not wait until the charts' megabytes are parsed.
        self._figures = b", ".join(
            part
            for part in (
                self._every,
                _links(assets.paths(FIGURES), "preload; as=script; fetchpriority=low"),
            )
            if part
        )
        self._with_figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
        elif (
            scope["path"].startswith(PREFIX)
            and (found := self._assets.answer(scope["path"])) is not None
            and _reads_gzip(scope)
        ):
            await send({"type": "http.response.start", "status": 200, "headers": found[1]})
            await send({"type": "http.response.body", "body": found[0]})
        elif scope["path"] in self._pages:
            told = self._figures if scope["path"] in self._with_figures else self._every

            async def with_links(message: Message) -> None:
                if message["type"] == "http.response.start" and message["status"] == 200 and told:
                    message["headers"] = [*message["headers"], (b"link", told)]
                await send(message)

            await self._app(scope, receive, with_links)
        else:
            await self._app(scope, receive, send)


def _links(paths: Sequence[str], how: str) -> bytes:
    return ", ".join(f"<{path}>; rel={how}; crossorigin" for path in paths).encode()


def _reads_gzip(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"gzip" in headers.get(b"accept-encoding", b"") and b"range" not in headers
