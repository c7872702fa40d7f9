"""The login in a real browser against a real, if small, provider: nothing before it, the pages after it, no token on the way."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from overrun.analysis.words.times import rfc3339
from overrun.dashboard import launch
from tests.analysis.builders import T0, at, insert, requests, store
from tests.dashboard.fake_api import FakeApi, fake_api
from tests.dashboard.oidc_stub import CLIENT, SECRET, USER, Provider, provider
from tests.waiting import LIMIT_S

READ_TOKEN = "the-read-token-of-this-test"
WINDOW = urlencode({"from": rfc3339(T0), "to": rfc3339(at(150)), "slo": "e2el:5000"})


@dataclass(frozen=True)
class Guarded:
    """A dashboard behind a login, the provider it asks and the API that it reads."""

    url: str
    idp: Provider
    api: FakeApi


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    con = store()
    insert(con, requests(140, other_ms=100.0, route="/only-after-login"))
    with ExitStack() as stack:
        idp, api = stack.enter_context(provider()), stack.enter_context(fake_api(con))
        port = launch.pick_port(0)
        idp.redirect_uri = f"http://127.0.0.1:{port}/oauth2callback"
        write_secrets(folder, idp)
        environment = launch.environment(api.url) | {"OVERRUN_READ_TOKEN": READ_TOKEN}
        process = subprocess.Popen(
            launch.command(port),
            env=environment,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(process.wait, LIMIT_S)
        stack.callback(process.terminate)
        yield Guarded(launch.wait_ready(process, port), idp, api)


def write_secrets(folder: Path, idp: Provider) -> None:
    (folder / ".streamlit").mkdir()
    lines = {
        "redirect_uri": idp.redirect_uri,
        "cookie_secret": "long-and-random-" * 3,
        "client_id": CLIENT,
        "client_secret": SECRET,
        "server_metadata_url": f"{idp.url}/.well-known/openid-configuration",
    }
    (folder / ".streamlit" / "secrets.toml").write_text(
        "[auth]\n" + "".join(f'{name} = "{value}"\n' for name, value in lines.items())
    )


@dataclass
class Visit:
    """A browser page, every address that it asked the dashboard for, and every message of its socket."""

    page: Any
    addresses: list[str]
    frames: list[str]

    def waits_for(self, words: str) -> None:
        self.page.get_by_text(words).first.wait_for()

    def sees_the_way_in_alone(self) -> None:
        self.page.get_by_role("button", name="Log in").wait_for()
        assert self.page.get_by_label("Time range").count() == 0
        assert "/only-after-login" not in self.page.content() + "".join(self.frames)


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    context = browser.new_context()
    context.set_default_timeout(1_000 * LIMIT_S)
    made = Visit(context.new_page(), [], [])
    made.page.on("request", lambda request: made.addresses.append(request.url))
    made.page.on(
        "websocket",
        lambda socket: socket.on(
            "framereceived",
            lambda frame: made.frames.append(
                frame if isinstance(frame, str) else frame.decode(errors="replace")
            ),
        ),
    )
    yield made
    context.close()


def test_nothing_is_shown_before_the_login_and_the_pages_after_it(
    guarded: Guarded, visit: Visit
) -> None:
    page, idp = visit.page, guarded.idp
    page.goto(f"{guarded.url}/?{WINDOW}")
    visit.sees_the_way_in_alone()
    assert not any(
        parameters.get("from") == rfc3339(T0) for _, parameters in guarded.api.asked
    )  # nobody's question was passed on
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name=f"Continue as {USER}").click()
    visit.waits_for("Log out")
    page.goto(f"{guarded.url}/?{WINDOW}")
    visit.waits_for("Within budget")
    expect(page.get_by_test_id("stMain")).to_contain_text("140 requests")
    assert idp.refused == []
    assert len(idp.issued) == 3  # one code, two tokens
    own = [
        address
        for address in visit.addresses
        if urlsplit(address).port == urlsplit(guarded.url).port
    ]
    secrets = [*idp.issued[1:], READ_TOKEN, SECRET]
    for secret in secrets:
        assert not any(secret in address for address in visit.addresses)
        assert secret not in page.content() + "".join(visit.frames)
    assert idp.issued[0] not in page.url
    assert len(own) > 3
    assert (
        page.evaluate("document.cookie.includes('_streamlit_user')") is False
    )  # no script can read who is logged in

    page.get_by_role("button", name="Log out").click()
    page.get_by_role("button", name="Log in").wait_for()
    expect(page.locator("body")).not_to_contain_text("140 requests")


def test_who_refuses_at_the_provider_stays_outside(guarded: Guarded, visit: Visit) -> None:
    visit.page.goto(guarded.url)
    visit.sees_the_way_in_alone()
    visit.page.get_by_role("button", name="Log in").click()
    visit.page.get_by_role("link", name="No", exact=True).click()
    visit.sees_the_way_in_alone()


@pytest.mark.parametrize(
    "cookie",
    ['{"is_logged_in":true,"origin":"x"}', "2|1:0|10:1700000000|15:_streamlit_user|8:e30=|0000"],
)
def test_a_forged_cookie_opens_nothing(guarded: Guarded, visit: Visit, cookie: str) -> None:
    visit.page.context.add_cookies(
        [{"name": "_streamlit_user", "value": cookie, "url": guarded.url}]
    )
    visit.page.goto(f"{guarded.url}/?{WINDOW}")
    visit.sees_the_way_in_alone()
