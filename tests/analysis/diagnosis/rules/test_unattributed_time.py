"""unattributed_time: fires above 30 % without a span and says where, silent below."""

import numpy as np
import pytest

from tests.analysis.builders import requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, of, run, the

N = 300
SLOW = np.arange(N) % 10 == 0


def test_fires_and_says_between_which_operations() -> None:
    frame = requests(
        N,
        prefill_ms=100.0,
        decode_ms=100.0,
        retrieval_ms=50.0,
        other_ms=np.where(SLOW, 5_000.0, 10.0),
        service="bff",
    )
    root = spans_of(frame, "POST /chat", "other", 0.0, 5_250.0, span_id=1, parent_id=0)
    search = spans_of(frame, "search", "retrieval", 0.0, 50.0, span_id=2)
    chat = spans_of(frame, "chat m", "generation", np.where(SLOW, 5_050.0, 60.0), 200.0, span_id=3)
    found = run(frame, spans=[root, search, chat], slo=E2E)
    finding = the(found, "unattributed_time")
    assert (found.verdict.stage, found.verdict.cause) == ("other", "unattributed_time")
    assert finding.evidence["share_of_excess"] == pytest.approx(1.0)
    assert (finding.evidence["after"], finding.evidence["before"], finding.service) == (
        "search",
        "chat m",
        "bff",
    )
    assert finding.fix is not None
    assert finding.fix.predicted is None
    assert finding.fix.reasons["predicted"]


def test_silent_below_the_share() -> None:
    frame = requests(
        N,
        prefill_ms=100.0,
        decode_ms=100.0,
        retrieval_ms=np.where(SLOW, 4_000.0, 50.0),
        other_ms=np.where(SLOW, 1_000.0, 10.0),
    )
    assert of(run(frame, slo=E2E), "unattributed_time") is None


def test_names_the_service_within_whose_span_the_time_passes() -> None:
    """A proxy between the application and the model keeps each slow call for 5 s, under its own server span."""
    kept = np.where(SLOW, 5_000.0, 10.0)
    frame = requests(N, generation_ms=200.0, other_ms=kept, service="bff")
    root = spans_of(frame, "POST /chat", "other", 0.0, kept + 200.0, span_id=1, parent_id=0)
    proxy = spans_of(frame, "POST /v1/chat", "other", 0.0, kept + 200.0, span_id=2, kind=2)
    chat = spans_of(frame, "chat m", "generation", kept, 200.0, span_id=3, parent_id=2)
    found = run(frame, spans=[root, proxy, chat], slo=E2E)
    assert the(found, "unattributed_time").service == "chat"
