"""Must a visitor log in first? Where the secrets hold an `[auth]` table, Streamlit's OpenID Connect login stands before every page."""

from __future__ import annotations

import streamlit as st

from overrun.dashboard import ui


def passed() -> bool:
    """Whether the visitor may see pages; draws the way in where not."""
    if not wanted() or st.user.get("is_logged_in"):
        return True
    ui.put(
        ui.box(
            "Log in to see this dashboard",
            [
                "This dashboard requires a login with OpenID Connect. Open a pasted link again after the login."
            ],
        )
    )
    st.button("Log in", on_click=st.login, type="primary")
    return False


def way_out() -> None:
    """Where there is a login, offer to end it."""
    if wanted():
        st.button("Log out", on_click=st.logout, type="tertiary", icon=":material/logout:")


def wanted() -> bool:
    """Whether the dashboard's secrets ask for a login; a secrets file that cannot be read asks for one, so that nothing is shown by mistake."""
    try:
        return "auth" in st.secrets
    except FileNotFoundError:
        return False
    except Exception:  # the edge: a broken secrets file must not open the door
        return True
