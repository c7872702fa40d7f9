"""Who erased what, and who took data out? One JSON line for each attempt, appended to a file that only its owner may read.

A line never holds the erased name: it holds the keyed hash that the views show for a user, and the same hash of a tenant's name.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

log = logging.getLogger("overrun.collector")


# A reader that exports in a loop must not fill the disk: beyond this the file becomes `<name>.1`, in the place of the one before. 40,000 lines each.
MAX_BYTES = 8 << 20


class Audit:
    """Appends lines to one file of bounded size, and keeps the one before; any thread may. A line that cannot be written is logged, and the request goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    @classmethod
    def beside(cls, db: Path, path: str = "") -> Audit:
        """The log at `path`, or beside the database as `<db>.audit.jsonl`."""
        db = db.resolve()
        return cls(Path(path) if path else db.with_name(f"{db.name}.audit.jsonl"))

    def write(
        self,
        action: str,
        *,
        token: str,
        peer: str,
        what: Mapping[str, str],
        status: int,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        """One line: `action` (forget, export), the kind of token that was shown, the client's address, what was asked for, the HTTP status, how many rows."""
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "action": action,
            "token": token,
            "from": peer,
            "what": dict(what),
            "status": status,
            "counts": dict(counts or {}),
        }
        try:
            with self._lock:
                self._rotate()
                handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                try:
                    os.write(handle, (json.dumps(line) + "\n").encode())
                finally:
                    os.close(handle)
        except OSError as error:
            log.error(
                "the audit log %s cannot be written (%s): %s",
                self.path,
                error.strerror,
                json.dumps(line),
            )

    def _rotate(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.path.stat().st_size >= MAX_BYTES:
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
