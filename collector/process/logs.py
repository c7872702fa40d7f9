"""How does the server say what happens? One line an event on standard error: text for people, JSON for collectors of logs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

FORMS = ("text", "json")


class _Lines(logging.Formatter):
    def __init__(self, form: str) -> None:
        super().__init__()
        self._json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        at = (
            datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        trouble = self.formatException(record.exc_info) if record.exc_info else ""
        if not self._json:
            return f"{at} {record.levelname.lower()} {record.name}: {record.getMessage()}" + (
                f"\n{trouble}" if trouble else ""
            )
        event = {
            "time": at,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps(event | ({"exception": trouble} if trouble else {}), ensure_ascii=False)


def configure(form: str = "text") -> None:
    """Every logger's events from INFO on, as lines on standard error; libraries' from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(form))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("overrun").setLevel(logging.INFO)
