"""Is the wire encrypted? A server's certificate files, as gRPC and uvicorn want them; the same for both ports."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from overrun.collector.config import CollectorSettings
from overrun.collector.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of the server's certificate chain and key, and of the authority whose clients alone may come ("" for anybody)."""

    cert: str
    key: str
    client_ca: str = ""

    @classmethod
    def of(cls, settings: CollectorSettings) -> Certificates | None:
        """The certificates of the settings, read and found to fit; None if TLS is not asked for.

        Raises:
            ConfigError: one of the two files is missing, cannot be read, or they do not belong together.
        """
        if not (settings.tls_cert or settings.tls_key or settings.tls_client_ca):
            return None
        if not (settings.tls_cert and settings.tls_key):
            raise ConfigError(
                "TLS needs both tls_cert and tls_key (tls_client_ca is optional): name two PEM files"
            )
        made = cls(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        try:
            made._context()
        except OSError as error:  # ssl.SSLError is one
            raise ConfigError(
                f"the TLS files {made.cert}, {made.key} {made.client_ca} cannot be used: {error.strerror or error}"
            ) from error
        return made

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        if self.client_ca:
            context.load_verify_locations(self.client_ca)
        return context

    def for_grpc(self) -> Any:
        """gRPC server credentials."""
        authority = Path(self.client_ca).read_bytes() if self.client_ca else None
        pair = (Path(self.key).read_bytes(), Path(self.cert).read_bytes())
        return grpc.ssl_server_credentials(
            [pair], root_certificates=authority, require_client_auth=authority is not None
        )

    def for_uvicorn(self) -> dict[str, Any]:
        """Arguments of `uvicorn.Config`."""
        made: dict[str, Any] = {"ssl_certfile": self.cert, "ssl_keyfile": self.key}
        return made | (
            {"ssl_ca_certs": self.client_ca, "ssl_cert_reqs": int(ssl.CERT_REQUIRED)}
            if self.client_ca
            else {}
        )
