"""Which certificates does our client trust when it asks a server over TLS?"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping

from overrun.collector.errors import ConfigError


def trusted(url: str, environment: Mapping[str, str] = os.environ) -> ssl.SSLContext | bool:
    """What httpx takes as `verify` for this address: the authorities of the system and that of `OVERRUN_TLS_CA`, with the certificate of
    `OVERRUN_TLS_CLIENT_CERT` and `_KEY` to show. False without TLS: reading the system's authorities takes 40 ms.

    Raises:
        ConfigError: a file of the three cannot be used.
    """
    if not url.startswith("https:"):
        return False
    authority, cert, key = (
        environment.get(f"OVERRUN_TLS_{name}") for name in ("CA", "CLIENT_CERT", "CLIENT_KEY")
    )
    context = ssl.create_default_context()
    try:
        if authority:
            context.load_verify_locations(authority)
        if cert:
            context.load_cert_chain(cert, key)
    except OSError as error:
        raise ConfigError(
            f"OVERRUN_TLS_CA, OVERRUN_TLS_CLIENT_CERT or _KEY cannot be used: {error.strerror or error}"
        ) from error
    return context
