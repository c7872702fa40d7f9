"""connection_churn: fires on handshakes that are new, silent when the network is slow without them."""

import numpy as np
import polars as pl
import pytest

from tests.analysis.builders import requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 400
LATE = np.arange(N) >= 200


def handshakes(named: str = "http.tls") -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    network = np.where(LATE, 2_000.0, 5.0)
    frame = requests(N, network_ms=network, first_token_ms=300.0, decode_ms=500.0)
    return frame, [spans_of(frame, named, "network", 1.0, 1_900.0, keep=LATE)]


@pytest.mark.parametrize(
    "named", ["http.tls", "RESOLVE", "SSL handshake", "socket connect 10.0.0.7:443"]
)
def test_fires_on_new_handshakes(named: str) -> None:
    frame, spans = handshakes(named)
    found = run(frame, spans=spans, slo=E2E)
    finding = the(found, "connection_churn")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "network",
        "connection_churn",
        ["connection_churn"],
    )
    assert (finding.evidence["handshake_ms_slow"], finding.evidence["handshake_ms_reference"]) == (
        pytest.approx(1_900.0),
        0.0,
    )
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after == pytest.approx(805.0)


def test_silent_when_the_network_spans_are_no_handshakes() -> None:
    frame, spans = handshakes("GET")
    found = run(frame, spans=spans, slo=E2E)
    assert of(found, "connection_churn") is None
    assert found.verdict.cause == "slow_dependency"
