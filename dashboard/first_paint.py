"""What does a visitor see while the browser loads the program? The page's first box, made here of the answer that is being fetched for the page anyway.

The program takes over a second to start even with nothing to show (docs/results/dashboard.json, "An empty Streamlit page").
Until the page itself stands, its sentence lies where it will appear. Where the server keeps the page waiting, grey places stand there at first, and after
five seconds a sentence with what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import streamlit as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from overrun.analysis.front.client import ClientError
from overrun.analysis.front.report import Report
from overrun.dashboard import anchors, data, login, nav, state, theme, ui

ADDRESS: Final = "/_first/"
# What of an address is the question of the API; of the rest, what decides the box: `p_` begins the parameters of a fix.
_ASKED: Final = ("from", "to", *state.KINDS, "slo")
_MORE: Final = ("metric", "show", "box", "before", "after", "fix")
_PARAMETER: Final = "p_"
# In the page's head: a script behind a style sheet would wait for it.
_ASK: Final = """<script>window.ovFirst = fetch("%s", {priority: "high"}).then(answer => answer.status === 200 ? answer.text() : "").catch(() => "")</script>"""
_PLACE: Final = """<div id="ov-first" role="status" hidden></div><template id="ov-wait">%s</template><script>(() => {
const first = document.getElementById("ov-first"), root = document.getElementById("root")
const stands = () => root.querySelector(".ov-box, [data-testid=stAlert]")
const watch = new MutationObserver(() => {
  const bar = root.querySelector(".st-key-filters")
  if (bar) first.style.top = bar.getBoundingClientRect().bottom + "px"
  if (stands()) { first.remove(); watch.disconnect() }
})
watch.observe(root, {childList: true, subtree: true})
setTimeout(() => { if (first.hidden && !stands()) {
  first.append(document.getElementById("ov-wait").content.cloneNode(true)); first.hidden = false } }, 700)
setTimeout(() => { const late = first.querySelector(".ov-unanswered"); if (late) late.hidden = false }, 5000)
ovFirst.then(body => { if (body && !stands()) { first.innerHTML = body; first.hidden = false } })
})()</script>"""
_WAIT: Final = """<div class="ov"><div class="ov-lead"><h1>Waiting for the server</h1><p class="ov-unanswered" hidden>%s has not answered for 5 s. It may be
busy with a long window, or it may hang: look at the log of <code>overrun serve</code>, or ask for a shorter window. This page goes on by itself.</p></div><i></i><i></i></div>"""
_BOX, _LEAD = "ov-box", "ov-lead"
_STYLE: Final = f"""<style>{theme.css().replace(_BOX, _LEAD)}
#ov-first{{position:absolute;z-index:1;top:126px;left:0;right:0;bottom:0;box-sizing:border-box;max-width:1700px;margin:0 auto;padding:16px 80px 0;
color-scheme:light dark;background:light-dark({theme.LIGHT.background},{theme.DARK.background});font-family:"Source Sans",sans-serif}}
#ov-first i{{display:block;height:160px;margin:16px 0;border-radius:6px;background:light-dark({theme.LIGHT.surface},{theme.DARK.surface})}}
@media (max-width:768px){{#ov-first{{padding:16px 16px 0}}}}
@media (prefers-color-scheme:dark){{html{{background:{theme.DARK.background}}}}}</style>"""


def of_page(name: str, query: Mapping[str, str]) -> str | None:
    """The first box of a page as safe HTML; None where the page has none to say before it is drawn.

    Raises:
        ClientError: the server does not answer; the page will say it.
    """
    asked = tuple(sorted((key, value) for key, value in query.items() if key in _ASKED))
    report = data.report(asked)
    if report.window.requests == 0:
        return None
    box: Callable[[data.Asked, Report, Mapping[str, str]], str | None] = import_module(
        f"overrun.dashboard.views.{name}"
    ).first
    body = box(asked, report, query)
    # Under a name of its own: a box of the page's stands for a page that is drawn.
    return (
        None
        if body is None
        else '<div class="ov">'
        + ui.whole(body).replace(f'class="{_BOX}', f'class="{_LEAD}')
        + "</div>"
    )


class FirstAnswer:
    """Tells of a browser that asks for a page, has fetched what the page will ask for, and puts the page's first box on the empty page meanwhile."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        query = dict(parse_qsl(scope["query_string"].decode(errors="replace")))
        # Where there is a login, nothing is asked for who has not passed it.
        if scope["path"].startswith(ADDRESS) and not login.wanted():
            await _answer(scope, query, send)
        elif (name := _page_at(scope["path"])) is None:
            await self._app(scope, receive, send)
        else:
            ask = None
            if not login.wanted():
                place = nav.place_named(name)
                asked = data.expect(query, nav.needs_of(place))
                more = {
                    key: value
                    for key, value in query.items()
                    if key in _MORE or key.startswith(_PARAMETER)
                }
                ask = (
                    f"{ADDRESS}{name}?{urlencode(dict(asked) | more)}"
                    if _known_host(scope)
                    else None
                )
            plain = [
                (key, value) for key, value in scope["headers"] if key != b"accept-encoding"
            ]  # it is compressed once it is whole
            await self._app({**scope, "headers": plain}, receive, _with(ask, send))


async def _answer(scope: Scope, query: Mapping[str, str], send: Send) -> None:
    name = scope["path"].removeprefix(ADDRESS)
    body = None
    if _known_host(scope) and any(place.name == name for place in nav.PLACES):
        try:
            body = await asyncio.to_thread(of_page, name, query)
        except ClientError:
            body = None
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; sandbox"),
    ]
    await send(
        {"type": "http.response.start", "status": 204 if body is None else 200, "headers": headers}
    )
    await send({"type": "http.response.body", "body": (body or "").encode()})


def _with(ask: str | None, send: Send) -> Send:
    """Sends the program's empty page under the name of ours, with the place of the first box on it and where to `ask` for that."""
    begun: list[Message] = []
    parts: list[bytes] = []

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            begun.append(message)
        elif message["type"] == "http.response.body" and begun:
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                page = _with_place(b"".join(parts).decode(), ask).encode()
                # The page is made for this visit: what names and dates the file does not name it.
                kept = [
                    (key, value)
                    for key, value in begun[0]["headers"]
                    if key not in (b"content-length", b"etag", b"last-modified")
                ]
                # Named before all files of the program, of which a browser fetches six at a time.
                early = (
                    [
                        (
                            b"link",
                            f"<{ask}>; rel=preload; as=fetch; crossorigin; fetchpriority=high".encode(),
                        )
                    ]
                    if ask
                    else []
                )
                await send(
                    {
                        **begun[0],
                        "headers": [*early, *kept, (b"content-length", str(len(page)).encode())],
                    }
                )
                await send({"type": "http.response.body", "body": page})
        else:
            await send(message)

    return sent


def _with_place(page: str, ask: str | None) -> str:
    page = page.replace("<title>Streamlit</title>", "<title>Overrun</title>").replace(
        "</body>", f"{anchors.SCRIPT}{anchors.PICTURES}</body>", 1
    )
    if ask is None:
        return page
    # `ask` is a name of ours and what urlencode made: nothing in it ends a string or a tag.
    return page.replace("<head>", f"<head>{_ASK % ask}{_STYLE}", 1).replace(
        "</body>", f"{_PLACE % (_WAIT % ui.text(data.url(), 200))}</body>", 1
    )


def _page_at(path: str) -> str | None:
    name = path.strip("/") or nav.PLACES[0].name
    return (
        name
        if path in ("/", f"/{name}") and any(place.name == name for place in nav.PLACES)
        else None
    )


def _known_host(scope: Scope) -> bool:
    """Whether the browser came by a name of this server: another site's page must not read an answer through a name that it makes point here."""
    allowed = [host.strip("[]") for host in st.get_option("server.allowedHosts") or []]
    host = dict(scope["headers"]).get(b"host", b"").decode(errors="replace")
    try:
        return not allowed or urlsplit(f"//{host}").hostname in allowed
    except ValueError:
        return False
