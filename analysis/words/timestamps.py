"""How do times travel inside? As microseconds since 1970."""

from datetime import UTC, datetime, timedelta


def to_us(time: datetime) -> int:
    """Return microseconds since 1970."""
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def from_us(microseconds: int) -> datetime:
    """Return the time in UTC of microseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
