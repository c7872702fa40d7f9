"""With an `[auth]` table nobody sees a page before logging in; without one nothing is asked."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:streamlit.*")


def script() -> None:
    import streamlit

    from overrun.dashboard import login

    if login.passed():
        streamlit.write("the page")


def shown(**secrets: object) -> AppTest:
    app = AppTest.from_function(script)
    for name, value in secrets.items():
        app.secrets[name] = value
    return app.run()


def test_without_an_auth_table_nothing_is_asked() -> None:
    assert [element.value for element in shown().markdown] == ["the page"]


def test_with_an_auth_table_a_visitor_sees_the_way_in_alone() -> None:
    app = shown(
        auth={
            "redirect_uri": "http://127.0.0.1/oauth2callback",
            "cookie_secret": "x" * 32,
            "client_id": "a",
            "client_secret": "b",
            "server_metadata_url": "http://127.0.0.1:1/.well-known/openid-configuration",
        }
    )
    assert not app.exception
    assert not app.markdown
    assert [button.label for button in app.button] == ["Log in"]
    assert "Log in to see" in app.get("html")[0].proto.body


def test_the_login_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "DASHBOARD.md").read_text()
    for word in ("[auth]", "server_metadata_url", "cookie_secret", "OVERRUN_READ_TOKEN"):
        assert word in text
