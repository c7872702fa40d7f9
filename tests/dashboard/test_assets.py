"""The browser's program: compressed, kept, never outside its folder, and told of before the page asks for it."""

import asyncio
import gzip
import re
from typing import Any

import pytest
import zstandard

from overrun.dashboard.assets import EVERYWHERE, FIGURES, FOLDER, ICONS, TEXT, Assets, ServeAssets


@pytest.fixture(scope="module")
def assets() -> Assets:
    return Assets()


def answered(
    assets: Assets, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> tuple[dict[str, str], bytes]:
    """What a browser gets; whatever is passed on says so."""
    sent: list[Any] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"from", b"behind")]}
        )
        await send({"type": "http.response.body", "body": b"behind"})

    async def keep(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [
            (name.encode(), value.encode())
            for name, value in ({"accept-encoding": "gzip"} if headers is None else headers).items()
        ],
    }
    asyncio.run(
        ServeAssets(behind, assets, frozenset({"/", "/budget"}), frozenset({"/budget"}))(
            scope, None, keep
        )
    )  # type: ignore[arg-type]
    return {name.decode(): value.decode() for name, value in sent[0]["headers"]}, sent[1]["body"]


def test_a_script_is_the_file_compressed(assets: Assets) -> None:
    (path,) = assets.paths(["Html"])
    headers, body = answered(assets, path)
    assert gzip.decompress(body) == (FOLDER / path.removeprefix("/static/")).read_bytes()
    assert headers["content-encoding"] == "gzip"
    assert headers["content-type"] == "text/javascript"
    assert headers["content-length"] == str(len(body))
    assert "immutable" in headers["cache-control"]
    assert assets.answer(path) is assets.answer(path)  # compressed once


def test_a_browser_that_reads_zstd_gets_the_same_in_less(assets: Assets) -> None:
    (path,) = assets.paths(["Html"])
    headers, body = answered(assets, path, {"accept-encoding": "gzip, deflate, br, zstd"})
    assert headers["content-encoding"] == "zstd"
    plain = (FOLDER / path.removeprefix("/static/")).read_bytes()
    assert zstandard.ZstdDecompressor().decompress(body) == plain


def test_the_icon_font_holds_every_icon_that_is_drawn(assets: Assets) -> None:
    font = next((FOLDER / "media").glob("MaterialSymbols-Rounded.*"))
    _, body = answered(assets, f"/static/media/{font.name}")
    assert body == ICONS.read_bytes()
    assert len(body) < 20_000
    held = set(ICONS.with_suffix(".txt").read_text().split())
    scripts = [*(FOLDER / "js").glob("*.js"), *ICONS.parent.rglob("*.py")]
    named = re.compile(r":material/([a-z0-9_]+):")
    drawn = {name for path in scripts for name in named.findall(path.read_text())}
    assert drawn <= held


def test_the_text_font_holds_every_letter_of_our_words(assets: Assets) -> None:
    font = next((FOLDER / "media").glob("SourceSansVF-Upright.*"))
    _, body = answered(assets, f"/static/media/{font.name}")
    assert body == TEXT.read_bytes()
    assert len(body) < 50_000
    held: set[int] = set()
    for part in TEXT.with_suffix(".txt").read_text().split():
        first, _, last = part.removeprefix("U+").partition("-")
        held |= set(range(int(first, 16), int(last or first, 16) + 1))
    files = [*TEXT.parent.rglob("*.py"), *(TEXT.parents[1] / "analysis").rglob("*.py")]
    # In pictures drawn with text, and in a page that stands for a telemetry's letters, the browser's own font serves.
    drawn = set("".join(path.read_text() for path in files)) - set("\n✕‼█▏＝＋－＠\ufffd")
    assert {letter for letter in drawn if ord(letter) not in held} == set()


def test_a_font_is_not_compressed_again(assets: Assets) -> None:
    font = next(f"/static/media/{path.name}" for path in (FOLDER / "media").glob("Source*.woff2"))
    headers, body = answered(assets, font)
    assert "content-encoding" not in headers
    assert headers["content-type"] == "font/woff2"
    assert body[:4] == b"wOF2"


@pytest.mark.parametrize(
    "path",
    [
        "/static/js/../../index.html",
        "/static/..%2f..%2fconfig.py",
        "/static/js/none.js",
        "/static//etc/passwd",
        "/healthz",
    ],
)
def test_nothing_else_is_answered_from_the_folder(assets: Assets, path: str) -> None:
    assert answered(assets, path)[1] == b"behind"


@pytest.mark.parametrize(
    "headers", [{}, {"accept-encoding": "br"}, {"accept-encoding": "gzip", "range": "bytes=0-1"}]
)
def test_who_does_not_read_gzip_is_answered_by_streamlit(
    assets: Assets, headers: dict[str, str]
) -> None:
    (path,) = assets.paths(["Html"])
    assert answered(assets, path, headers)[1] == b"behind"


def test_a_page_tells_of_its_parts_and_the_first_page_of_no_figures(assets: Assets) -> None:
    first, budget = answered(assets, "/")[0], answered(assets, "/budget")[0]
    assert first["from"] == "behind"
    assert "Selectbox" in first["link"]
    assert "PlotlyChart" not in first["link"]
    assert "PlotlyChart" in budget["link"]
    assert "link" not in answered(assets, "/", method="POST")[0]


def test_the_installed_streamlit_has_every_part(assets: Assets) -> None:
    assert len(assets.paths([*EVERYWHERE, *FIGURES])) == len(EVERYWHERE) + len(FIGURES)
