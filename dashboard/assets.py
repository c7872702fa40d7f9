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
import zstandard
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
# Streamlit's icon font has 4,000 icons (375 kB); in its place stand those of symbols.txt, which both Streamlit's program and these pages name (10 kB).
# Made with fonttools: pyftsubset FONT --glyphs-file=symbols.txt --text="abc...z_0-9 " --no-layout-closure --layout-features='*' --flavor=woff2.
ICONS: Final = Path(__file__).with_name("symbols.woff2")
# Its text font holds the letters of 30 scripts (170 kB); in its place stand those of text.txt (43 kB), and a browser's own font draws the others.
# Made the same way with --unicodes-file=text.txt --layout-features=kern,liga,tnum,lnum,pnum,ccmp,locl,mark --no-hinting, and named "Overrun Text" in its
# name table: the SIL Open Font License 1.1, under which Adobe's Source Sans comes, keeps the name "Source" for the whole font.
TEXT: Final = Path(__file__).with_name("text.woff2")
_IN_PLACE_OF: Final = {"MaterialSymbols-Rounded.": ICONS, "SourceSansVF-Upright.": TEXT}
_COMPRESSED: Final = frozenset({".woff2", ".woff", ".png", ".gif", ".jpg", ".webp"})
_LEVEL: Final = 9
# Of 4.7 MB of script, level 12 leaves 1.22 MB in 0.5 s of CPU, gzip 1.42 MB in 0.2 s, level 19 1.13 MB in 3.8 s.
_ZSTD_LEVEL: Final = 12


class Assets:
    """Files under /static/js, /static/css and /static/media by the path that a browser asks for; read and compressed when first wanted."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._paths = {
            f"{PREFIX}{path.relative_to(folder).as_posix()}": path
            for path in folder.rglob("*.*")
            if path.is_file()
        }
        self._paths |= {
            address: smaller
            for address, path in self._paths.items()
            for font, smaller in _IN_PLACE_OF.items()
            if path.name.startswith(font)
        }
        self._kept: dict[tuple[str, bool], tuple[bytes, list[tuple[bytes, bytes]]]] = {}
        self._lock = threading.Lock()

    def paths(self, names: Iterable[str]) -> list[str]:
        """The paths of scripts by their names without the hash."""
        found = {
            path.rpartition("/")[2].rsplit(".", 2)[0]: path
            for path in self._paths
            if path.startswith(f"{PREFIX}js/")
        }
        return [found[name] for name in names if name in found]

    def answer(
        self, path: str, *, zstd: bool = False
    ) -> tuple[bytes, list[tuple[bytes, bytes]]] | None:
        """The body and headers of a file for a browser that reads gzip (or `zstd`, which is a fifth smaller), None where there is no such file."""
        file = self._paths.get(unquote(path))
        if file is None:
            return None
        with self._lock:
            if (path, zstd) not in self._kept:
                self._kept[path, zstd] = _packed(file, zstd=zstd)
            return self._kept[path, zstd]

    def warm(self, names: Sequence[str]) -> None:
        """Compress what every visitor needs before the first one comes: what the first page names, and these scripts."""
        page = (FOLDER.parent / "index.html").read_text()
        for path in [
            *(path for path in self._paths if path.rpartition("/")[2] in page),
            *self.paths(names),
        ]:
            self.answer(path, zstd=True)


def _packed(file: Path, *, zstd: bool) -> tuple[bytes, list[tuple[bytes, bytes]]]:
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
    small = (
        zstandard.ZstdCompressor(_ZSTD_LEVEL).compress(plain)
        if zstd
        else gzip.compress(plain, _LEVEL, mtime=0)
    )
    return small, [
        *headers,
        (b"content-encoding", b"zstd" if zstd else b"gzip"),
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
            and (reads := _reads(scope))
            and (found := self._assets.answer(scope["path"], zstd=b"zstd" in reads)) is not None
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


def _reads(scope: Scope) -> frozenset[bytes]:
    """Which of our compressions a browser reads; none where it asks for a part of a file."""
    headers = dict(scope["headers"])
    said = headers.get(b"accept-encoding", b"")
    if b"gzip" not in said or b"range" in headers:
        return frozenset()
    return frozenset(name for name in (b"gzip", b"zstd") if name in said)
