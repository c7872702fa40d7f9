"""Who may send and who may read: tokens, and the refusal to open up without them."""

from __future__ import annotations

import pytest

from collector.auth import Tokens, Unauthorized, check, is_loopback
from collector.errors import ConfigError


@pytest.mark.parametrize(("host", "local"), [("127.0.0.1", True), ("127.8.0.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
                                             ("10.0.0.4", False), ("gpu-7.example", False)])
def test_only_loopback_addresses_are_this_machine(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_another_host_needs_both_tokens() -> None:
    Tokens().check_host("127.0.0.1")
    Tokens(ingest="a", read="b").check_host("0.0.0.0")
    for missing in (Tokens(), Tokens(ingest="a"), Tokens(read="b")):
        with pytest.raises(ConfigError, match=r"OVERRUN_TOKEN.*127\.0\.0\.1"):
            missing.check_host("0.0.0.0")


def test_one_variable_sets_both_tokens_and_each_can_be_its_own() -> None:
    assert Tokens.from_environment({"OVERRUN_TOKEN": "x"}) == Tokens("x", "x")
    assert Tokens.from_environment({"OVERRUN_TOKEN": "x", "OVERRUN_READ_TOKEN": "y"}) == Tokens("x", "y")
    assert Tokens.from_environment({"OVERRUN_TOKEN": ""}) == Tokens(None, None)


def test_the_header_must_carry_exactly_the_token() -> None:
    check(None, None)
    check("Bearer secret", "secret")
    check("bearer  secret ", "secret")
    for header in (None, "", "secret", "Basic secret", "Bearer secre", "Bearer secrets", "Bearer é"):
        with pytest.raises(Unauthorized, match="authorization: Bearer"):
            check(header, "secret")
