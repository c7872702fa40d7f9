"""Who may send and who may read: tokens, and the refusal to open up without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from overrun.collector.access.auth import (
    Forbidden,
    Tokens,
    Unauthorized,
    check,
    check_erasing,
    is_loopback,
)
from overrun.collector.errors import ConfigError


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.0.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.4", False),
        ("gpu-7.example", False),
    ],
)
def test_only_loopback_addresses_are_this_machine(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_another_host_needs_both_tokens() -> None:
    Tokens().check_hosts("127.0.0.1", "::1")
    Tokens(ingest="a", read="b").check_hosts("0.0.0.0", "0.0.0.0")
    Tokens(ingest="a").check_hosts("0.0.0.0", "127.0.0.1")  # reading from this machine only
    for missing in (Tokens(), Tokens(ingest="a"), Tokens(read="b")):
        with pytest.raises(ConfigError, match=r"OVERRUN_TOKEN.*127\.0\.0\.1"):
            missing.check_hosts("0.0.0.0", "0.0.0.0")


def test_a_token_file_has_a_token_for_each_side_or_one_for_both(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    for text, wanted in (
        ("secret\n", Tokens("secret", "secret")),
        ("# ours\ningest=a\nread=b=c\n", Tokens("a", "b=c")),
        ("ingest=a\n", Tokens("a", None)),
        ("both\nerase=c\n", Tokens("both", "both", "c")),
    ):
        path.write_text(text)
        assert (
            Tokens.find({"OVERRUN_TOKEN": "other"}, str(path), "0.0.0.0", tmp_path / "t.db")
            == wanted
        )
    for text in ("", "# nothing\n"):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"tokens is empty: write `ingest=TOKEN`"):
            Tokens.from_file(path)
    with pytest.raises(ConfigError, match=r"gone cannot be read"):
        Tokens.from_file(tmp_path / "gone")


def test_a_container_makes_its_tokens_at_the_first_start_and_names_their_file_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db, container = tmp_path / "t.db", {"container": "podman"}
    made = Tokens.find(container, "", "0.0.0.0", db)
    path = tmp_path / "t.db.token"
    assert made.ingest
    assert made.read
    assert made.erase
    assert len({made.ingest, made.read, made.erase}) == 3
    assert (path.stat().st_mode & 0o777, str(path) in caplog.text) == (0o600, True)
    assert made.ingest not in caplog.text
    assert Tokens.find(container, "", "0.0.0.0", db) == made
    assert Tokens.find(container | {"OVERRUN_TOKEN": "mine"}, "", "0.0.0.0", db) == Tokens(
        "mine", "mine"
    )
    assert Tokens.find(container, "", "127.0.0.1", db) == Tokens()
    with pytest.raises(ConfigError, match=r"cannot be written .*OVERRUN_TOKEN"):
        Tokens.find(container, "", "0.0.0.0", tmp_path / "no folder" / "t.db")


def test_one_variable_sets_both_tokens_and_each_can_be_its_own() -> None:
    assert Tokens.from_environment({"OVERRUN_TOKEN": "x"}) == Tokens("x", "x")
    assert Tokens.from_environment({"OVERRUN_TOKEN": "x", "OVERRUN_READ_TOKEN": "y"}) == Tokens(
        "x", "y"
    )
    assert Tokens.from_environment({"OVERRUN_TOKEN": ""}) == Tokens(None, None)


def test_erasing_has_a_token_of_its_own() -> None:
    check_erasing(None, Tokens())  # this machine only
    assert Tokens.from_environment({"OVERRUN_ERASE_TOKEN": "z"}) == Tokens(None, None, "z")
    assert Tokens.from_environment({"OVERRUN_TOKEN": "x"}).erase is None
    tokens = Tokens("a", "a", "z")
    check_erasing("Bearer z", tokens)
    with pytest.raises(Forbidden, match="the ingest and read token does not permit erasing"):
        check_erasing("Bearer a", tokens)
    with pytest.raises(Unauthorized, match="erase token"):
        check_erasing("Bearer b", tokens)
    with pytest.raises(Forbidden, match="`erase=TOKEN`"):
        check_erasing("Bearer a", Tokens("a", "a"))


def test_the_header_must_carry_exactly_the_token() -> None:
    check(None, None)
    check("Bearer secret", "secret")
    check("bearer  secret ", "secret")
    for header in (
        None,
        "",
        "secret",
        "Basic secret",
        "Bearer secre",
        "Bearer secrets",
        "Bearer é",
    ):
        with pytest.raises(Unauthorized, match="authorization: Bearer"):
            check(header, "secret")
