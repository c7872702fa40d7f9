"""Where is a lake? Reads `ducklake:postgresql://USER@HOST:PORT/DATABASE?data=FOLDER`, with `s3://BUCKET/PREFIX` as another kind of folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from overrun.collector.errors import ConfigError

_FORM = "ducklake:postgresql://USER@HOST:PORT/DATABASE?data=FOLDER, where FOLDER is an absolute path or s3://BUCKET/PREFIX"


@dataclass(frozen=True, slots=True)
class LakeAddress:
    """`catalog` is the PostgreSQL database as libpq reads it, without the password; `data` is where the files are and ends with a slash."""

    catalog: str
    data: str
    password: str = field(default="", repr=False)

    @classmethod
    def read(cls, text: str) -> LakeAddress:
        """Return the parts of an address.

        Raises:
            ConfigError: it is no such address. The message shows no password.
        """
        kind, _, rest = text.partition(":")
        try:
            parts = urlsplit(rest)
        except ValueError:  # brackets that are no IPv6 address
            parts = urlsplit("")
        if kind != "ducklake" or parts.scheme not in ("postgresql", "postgres"):
            raise ConfigError(f"--store {_shown(text)!r} is not the address of a lake: use {_FORM}")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        data = options.pop("data", "")
        local = PurePosixPath(data)
        if not data.startswith("s3://") and (not local.is_absolute() or ".." in local.parts):
            raise ConfigError(
                f"--store has data={data!r}, which is neither an absolute path nor s3://...: use {_FORM}"
            )
        if not parts.path.strip("/"):
            raise ConfigError(f"--store {_shown(text)!r} names no database: use {_FORM}")
        # DuckDB's errors show the address: a password in it would come into logs and answers.
        catalog = urlunsplit(
            parts._replace(netloc=_shown(parts.netloc), query=urlencode(options, quote_via=quote))
        )
        return cls(catalog, data.rstrip("/") + "/", unquote(parts.password or ""))

    def __str__(self) -> str:
        return f"ducklake:{self.catalog}, data={self.data}"


def _shown(text: str) -> str:
    """The address without its password."""
    before, at, after = text.rpartition("@")
    scheme, slashes, user = before.rpartition("//")
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{after}"
