"""The demo application's incidents, sent by the real SDK over the network into a real server, end in the right stage and cause."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import ROOT, ServerProcess, StartServer, settled
from tests.waiting import LIMIT_S


def verdict_after(server: ServerProcess, incident: str) -> dict[str, Any]:
    """Run the application for some seconds, its incident half way through, and return the report on exactly its requests."""
    started = datetime.now(UTC).isoformat()
    command = [
        sys.executable, "-m", "overrun.sample_traces.app.run", "--endpoint", server.http, "--duration", "6", "--rate", "25", "--incident", incident,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    settled(server.http)
    until = datetime.now(UTC).isoformat()
    window = {"from": started, "to": until, "service": "rag-demo", "slo": "chat"}
    report: dict[str, Any] = httpx.get(
        f"{server.http}/api/v1/report", params=window, timeout=LIMIT_S, trust_env=False
    ).json()
    return report


@pytest.mark.parametrize(
    ("incident", "stage", "rule"),
    [
        ("slow-retrieval", "retrieval", "slow_dependency"),
        ("runaway-outputs", "decode", "long_outputs"),
        ("lost-prefix-cache", "prefill", "prefix_cache_lost"),
    ],
)
def test_each_incident_is_blamed_on_its_stage(
    start_server: StartServer, tmp_path: Path, incident: str, stage: str, rule: str
) -> None:
    report = verdict_after(start_server(tmp_path / "demo.db"), incident)
    verdict = report["verdict"]
    assert report["window"]["requests"] >= 100
    assert (verdict["status"], verdict["stage"]) == ("over_budget", stage), verdict["sentence"]
    assert verdict["cause"] == rule
    assert [finding["rule"] for finding in report["findings"]][:1] == [rule]
    predicted = report["findings"][0]["fix"]["predicted"]
    assert predicted["after"] < predicted["before"]
