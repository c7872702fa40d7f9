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


@pytest.mark.parametrize("more", [False, True])
def test_lookups_that_stall_are_no_new_connections_unless_there_are_more(more: bool) -> None:
    slow = LATE & (np.arange(N) % 4 == 0)
    lookup = np.where(slow, 5_005.0, 2.0)
    frame = requests(N, network_ms=lookup, first_token_ms=300.0, decode_ms=500.0)
    kept = LATE | (np.arange(N) % 5 == 0) if more else np.ones(N, dtype=bool)
    root = spans_of(frame, "POST /ask", "other", 0.0, lookup + 800.0, span_id=1, parent_id=0)
    lookups = spans_of(frame, "dns.lookup", "network", 0.0, lookup, keep=kept)
    found = run(frame, spans=[root, lookups], slo=E2E)
    finding = the(found, "connection_churn")
    assert ("name lookups stall" in found.verdict.sentence) is not more
    assert ("new connection" in found.verdict.sentence) is more
    if not more:
        assert finding.evidence["stalled_ms"] == pytest.approx(5_005.0)
        assert finding.evidence["stalled_ratio"] == pytest.approx(0.25, abs=0.01)
        assert found.verdict.owner == "platform"
