"""Who may send, and who may read? Bearer tokens, apart for ingest and for reading; without tokens only this machine is served."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from collector.errors import CollectorError, ConfigError


class Unauthorized(CollectorError):
    """The token is missing or wrong."""

    http_status = 401
    grpc_status = 16  # UNAUTHENTICATED
    reason = "unauthorized"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens asked for; None asks for none."""

    ingest: str | None = None
    read: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Tokens:
        """OVERRUN_INGEST_TOKEN and OVERRUN_READ_TOKEN; OVERRUN_TOKEN sets both. Never from the command line: others can read that."""
        both = environment.get("OVERRUN_TOKEN") or None
        return cls(environment.get("OVERRUN_INGEST_TOKEN") or both, environment.get("OVERRUN_READ_TOKEN") or both)

    def check_host(self, host: str) -> None:
        """Refuse to listen beyond this machine without tokens.

        Raises:
            ConfigError: `host` is not loopback and a token is missing.
        """
        if (self.ingest is None or self.read is None) and not is_loopback(host):
            raise ConfigError(f"--host {host} lets other machines in: set OVERRUN_TOKEN (or OVERRUN_INGEST_TOKEN and OVERRUN_READ_TOKEN), or use 127.0.0.1")


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check(authorization: str | None, token: str | None) -> None:
    """Compare an Authorization header with a token, in constant time.

    Raises:
        Unauthorized: a token is asked for and the header does not carry it.
    """
    if token is None:
        return
    kind, _, given = (authorization or "").partition(" ")
    if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
        raise Unauthorized("a bearer token is needed: send the header `authorization: Bearer TOKEN`")
