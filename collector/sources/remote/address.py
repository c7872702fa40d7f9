"""Is a text the address of a source rather than a file, and of which kind? Nothing heavy is imported: every command asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from overrun.collector.errors import ConfigError

KINDS: Final = (
    *("prometheus", "tempo", "jaeger", "langfuse", "langsmith", "phoenix", "mlflow", "clickhouse"),
)
# The ports at which these listen by default: an address alone is then enough.
_PORTS: Final = {
    **dict.fromkeys((9090, 9009, 8428), "prometheus"),
    3200: "tempo",
    16686: "jaeger",
    6006: "phoenix",
    5000: "mlflow",
    8123: "clickhouse",
}
_HOSTS: Final = {"langfuse.com": "langfuse", "smith.langchain.com": "langsmith"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a source is: its kind, empty for a server of ours, and the address of its API."""

    kind: str
    url: str

    @classmethod
    def read(cls, text: str) -> Address:
        """`KIND:URL`, or a URL, whose port or host says the kind where it is another tool's. Raises ConfigError: neither."""
        kind, _, rest = text.partition(":")
        if kind in KINDS:
            return cls(kind, checked_url(rest))
        url = checked_url(text)
        parts = urlsplit(url)
        host = parts.hostname or ""
        by_host = [k for end, k in _HOSTS.items() if host == end or host.endswith(f".{end}")]
        return cls(by_host[0] if by_host else _PORTS.get(parts.port or 0, ""), url)

    def __str__(self) -> str:
        return f"{self.kind}:{self.url}"


def is_address(text: str) -> bool:
    """Whether a text is meant as a source rather than as a file."""
    kind, colon, _ = text.partition(":")
    return text.startswith(("http://", "https://")) or (bool(colon) and kind in KINDS)


def checked_url(text: str) -> str:
    """An http(s) address without a query, credentials or a closing slash. Raises ConfigError, which names what is wrong."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"{text!r} is not an address such as http://127.0.0.1:9090")
    if parts.username or parts.password:
        raise ConfigError(
            "the address holds a user or password, which others can read in the list of processes: "
            "set OVERRUN_SOURCE_USER and OVERRUN_SOURCE_PASSWORD, or OVERRUN_SOURCE_TOKEN"
        )
    if parts.query or parts.fragment:
        raise ConfigError(f"{text!r} holds a query: give the address alone, and --match")
    return text.rstrip("/")
