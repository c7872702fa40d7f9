"""Does the demo ask for windows that a person can read in a time field?"""

import json
import subprocess

import pytest

from overrun.analysis.front import demo


def test_windows_are_widened_to_whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"name": "chat", "from": "2026-11-20T09:59:59.000001Z", "to": "2026-11-20T10:00:00.250000Z"}
    ]
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda command, **_: subprocess.CompletedProcess(
            command, 0, json.dumps({"recordings": rows}), ""
        ),
    )
    assert demo._send("http://127.0.0.1:1") == [
        {"name": "chat", "from": "2026-11-20T09:59:59Z", "to": "2026-11-20T10:00:01Z"}
    ]
