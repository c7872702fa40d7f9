"""What can go wrong between a sender and the store, and which status reports it: one small tree, each error with its HTTP and gRPC status."""

from __future__ import annotations

from pathlib import Path


class CollectorError(Exception):
    """Root of every error that the collector raises on purpose."""

    http_status = 500
    grpc_status = 13  # INTERNAL
    reason = "internal"  # label of the counter of refused requests


class BadPayload(CollectorError):
    """The body is not what its content type says; sending it again cannot help."""

    http_status = 400
    grpc_status = 3  # INVALID_ARGUMENT
    reason = "bad_payload"


class UnsupportedMedia(CollectorError):
    """A content type or encoding that OTLP does not know."""

    http_status = 415
    grpc_status = 12  # UNIMPLEMENTED
    reason = "unsupported_media"


class NoSuchPath(CollectorError):
    """There is nothing at this path."""

    http_status = 404
    grpc_status = 12  # UNIMPLEMENTED
    reason = "no_such_path"


class WrongMethod(CollectorError):
    """OTLP is POST."""

    http_status = 405
    grpc_status = 12  # UNIMPLEMENTED
    reason = "wrong_method"


class TooSlow(CollectorError):
    """The body did not come in time."""

    http_status = 408
    grpc_status = 4  # DEADLINE_EXCEEDED
    reason = "too_slow"


class PayloadTooLarge(CollectorError):
    """The body, or what it decompresses to, is over the configured limit."""

    http_status = 413
    grpc_status = 8  # RESOURCE_EXHAUSTED, without RetryInfo: not retryable
    reason = "too_large"


class QueueFull(CollectorError):
    """The writer is behind; the sender should come again after `retry_after_s`."""

    http_status = 503
    grpc_status = 8  # RESOURCE_EXHAUSTED, with RetryInfo: retryable
    reason = "queue_full"

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreUnavailable(CollectorError):
    """The store refused the transaction (disk full, read-only, closing): nothing was stored, the sender should come again."""

    http_status = 503
    grpc_status = 14  # UNAVAILABLE
    reason = "store_unavailable"

    def __init__(self, message: str, retry_after_s: int = 5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotAsWritten(StoreUnavailable):
    """What was read back after a commit is not what was written: the commit was taken back, the sender should come again."""

    reason = "not_as_written"


class StoreError(CollectorError):
    """The database file cannot be used as it is."""


class StoreMissing(StoreError):
    """There is no database at the path."""

    @classmethod
    def at(cls, path: Path) -> StoreMissing:
        """The error of a path that holds nothing."""
        remedy = f"name another --db, or make one with `overrun serve --db {path}` or `overrun store import ... --db {path}`"
        return cls(f"there is no database at {path}: {remedy}")


class StoreLocked(StoreError):
    """Another process holds the database; ask it over HTTP."""


class StoreVersion(StoreError):
    """The file was written by another schema version."""


class ConfigError(CollectorError):
    """A setting that is unknown or out of range; the program refuses to start."""


class ImportFailed(CollectorError):
    """A file that is neither OTLP nor anything else that `overrun store import` reads."""
