"""Simulated what-ifs through a real server: over its API, and in the fixes of its report once its worker has made them."""

import time
from collections.abc import Iterator

import httpx
import pytest
from typer.testing import CliRunner

from overrun import app
from sample_traces.replay import RECORDINGS_PATH
from tests.conftest import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path_factory.mktemp("simulated") / "t.db", environment={"OVERRUN_QUIET_S": "0.1"})
    assert CliRunner().invoke(app, ["import", str(RECORDINGS_PATH / "vllm-spans"), "--url", made.http]).exit_code == 0
    yield made
    made.stop()


# The recording's first minute: an engine that falls behind.
WINDOW = {"from": "2026-11-20T10:00:00Z", "to": "2026-11-20T10:01:00Z", "baseline": "none", "slo": "ttft:1000 e2el:5000"}


def test_a_server_simulates_replicas_and_says_how_well_it_fits(server: ServerProcess) -> None:
    answer = httpx.get(f"{server.http}/api/v1/whatif/replicas", params={"replicas": "2", **WINDOW}, timeout=120.0).json()
    assert answer["method"] == "simulated", answer
    predicted = answer["predicted"]
    low, high = predicted["interval"]
    assert low <= predicted["after"] <= high < predicted["before"]
    assert 0.0 <= predicted["backtest_error_ratio"] < 0.2
    assert predicted["cost"]["replicas_factor"] == 2.0


def test_a_report_takes_the_simulated_figure_when_the_worker_has_made_it(server: ServerProcess) -> None:
    until = time.monotonic() + 90.0
    fix = None
    while time.monotonic() < until:
        [finding] = [f for f in httpx.get(f"{server.http}/api/v1/report", params=WINDOW, timeout=60.0).json()["findings"] if f["rule"] == "under_capacity"]
        fix = finding["fix"]
        if fix["method"] == "simulated":
            break
        assert "ask again in a minute" in fix["reasons"]["simulated"]
        time.sleep(0.2)
    assert fix is not None
    assert (fix["method"], fix["whatif"]) == ("simulated", "replicas")
    assert fix["predicted"]["after"] < fix["predicted"]["before"]
    assert fix["predicted"]["backtest_error_ratio"] is not None
