"""Who may send, who may read, and who may erase? A bearer token for each; without tokens only this machine is served."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from overrun.collector.errors import CollectorError, ConfigError

log = logging.getLogger("overrun.collector")


class Unauthorized(CollectorError):
    """The token is missing or wrong."""

    http_status = 401
    grpc_status = 16  # UNAUTHENTICATED
    reason = "unauthorized"


class Forbidden(CollectorError):
    """The token is right for something else, or nothing that could be sent would be enough."""

    http_status = 403
    grpc_status = 7  # PERMISSION_DENIED
    reason = "forbidden"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens asked for. None asks for none; but once any token is set, erasing needs `erase`."""

    ingest: str | None = None
    read: str | None = None
    erase: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Tokens:
        """OVERRUN_INGEST_TOKEN and OVERRUN_READ_TOKEN (OVERRUN_TOKEN sets both), and OVERRUN_ERASE_TOKEN. Never from the command line: others can read that."""
        both = environment.get("OVERRUN_TOKEN") or None
        return cls(
            environment.get("OVERRUN_INGEST_TOKEN") or both,
            environment.get("OVERRUN_READ_TOKEN") or both,
            environment.get("OVERRUN_ERASE_TOKEN") or None,
        )

    @classmethod
    def from_file(cls, path: Path) -> Tokens:
        """Lines `ingest=TOKEN`, `read=TOKEN` and `erase=TOKEN`; one line without a name is the token of sending and of reading.

        Raises:
            ConfigError: the file cannot be read or has no token.
        """
        try:
            lines = [
                line.strip()
                for line in path.read_text(encoding="utf-8").splitlines()
                if line.strip() and not line.startswith("#")
            ]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the token file {path} cannot be read: {error}") from error
        kinds = ("ingest=", "read=", "erase=")
        named = dict(line.split("=", 1) for line in lines if line.startswith(kinds))
        both = next((line for line in lines if not line.startswith(kinds)), None)
        found = cls(
            named.get("ingest") or both, named.get("read") or both, named.get("erase") or None
        )
        if found == cls():
            raise ConfigError(
                f"the token file {path} is empty: write `ingest=TOKEN` and `read=TOKEN`, or one token for both; `erase=TOKEN` to allow erasing"
            )
        return found

    @classmethod
    def find(
        cls, environment: Mapping[str, str], token_file: str, host: str, beside: Path
    ) -> Tokens:
        """The tokens to ask for: of the file, else of the environment; in a container that listens beyond itself, made at the first start.

        Raises:
            ConfigError: the token file cannot be used, or the one to be made cannot be written.
        """
        found = cls.from_file(Path(token_file)) if token_file else cls.from_environment(environment)
        if found != cls() or is_loopback(host) or not in_container(environment):
            return found
        path = beside.with_name(beside.name + ".token")
        if not path.exists():
            _make_file(path)
            log.warning(
                "no token was set, so one was generated for ingest and one for reading: see %s",
                path,
            )
        return cls.from_file(path)

    def check_hosts(self, host: str, api_host: str) -> None:
        """Refuse to listen beyond this machine without tokens.

        Raises:
            ConfigError: `host` (of ingest) or `api_host` (of reading) is not loopback and its token is missing.
        """
        for at, token, name in (
            (host, self.ingest, "OVERRUN_INGEST_TOKEN"),
            (api_host, self.read, "OVERRUN_READ_TOKEN"),
        ):
            if token is None and not is_loopback(at):
                raise ConfigError(
                    f"--host {at} is reachable from other machines: set OVERRUN_TOKEN (or {name}), name a --token-file, or use 127.0.0.1"
                )


def in_container(environment: Mapping[str, str]) -> bool:
    """Whether this process runs in a container, as far as it knows."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST") or environment.get("container")) or any(
        Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv")
    )


def _make_file(path: Path) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.writelines(
                f"{kind}={secrets.token_urlsafe(32)}\n" for kind in ("ingest", "read", "erase")
            )
    except OSError as error:
        raise ConfigError(
            f"no token is set and {path} cannot be written ({error.strerror}): set OVERRUN_TOKEN or name a --token-file"
        ) from error


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
    if not _is(authorization, token):
        raise Unauthorized(
            "a bearer token is needed: send the header `authorization: Bearer TOKEN`"
        )


def _is(authorization: str | None, token: str) -> bool:
    kind, _, given = (authorization or "").partition(" ")
    return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def kind_of(authorization: str | None, tokens: Tokens) -> str:
    """Which token a request carries: ingest, read, erase, the first two as `ingest and read` if they are the same; else `none` or `unknown`."""
    kinds = [
        kind
        for kind in ("ingest", "read", "erase")
        if getattr(tokens, kind) is not None and _is(authorization, getattr(tokens, kind))
    ]
    return " and ".join(kinds) or ("unknown" if authorization else "none")


def check_erasing(authorization: str | None, tokens: Tokens) -> None:
    """Admit requests that may erase: without any token all that reach the port, else those with the erase token.

    Raises:
        Forbidden: another token was sent, or no erase token is set. Unauthorized: no known token was sent.
    """
    if tokens == Tokens():
        return
    if tokens.erase is None:
        raise Forbidden(
            "erasing is disabled: set an erase token, OVERRUN_ERASE_TOKEN or a line `erase=TOKEN` in the token file, and start the server again"
        )
    if _is(authorization, tokens.erase):
        return
    kind = kind_of(authorization, tokens)
    if kind not in ("none", "unknown"):
        raise Forbidden(
            f"the {kind} token does not permit erasing: send the erase token (OVERRUN_ERASE_TOKEN, or `erase=` in the token file)"
        )
    raise Unauthorized(
        "erasing needs the erase token: send the header `authorization: Bearer TOKEN`"
    )
