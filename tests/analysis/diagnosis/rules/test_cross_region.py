"""cross_region: fires when calls cross regions at a constant distance, silent without regions or where they always crossed."""

import numpy as np
import polars as pl
import pytest

from overrun.collector.normalise.stages import ROLE
from tests.analysis.builders import calls_of, requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 400
LATE = np.arange(N) >= 200


def calls(regions: bool, always: bool = False) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    frame = requests(
        N, network_ms=np.where(LATE, 2_000.0, 5.0), first_token_ms=300.0, decode_ms=500.0
    )
    peer = ["us-east-1" if late or always else "eu-west-1" for late in LATE]
    attributes = {"cloud.region": "eu-west-1", "server.region": peer} if regions else {}
    return frame, [spans_of(frame, "POST", "network", 1.0, 100.0, attributes=attributes)]


def test_fires_with_both_regions() -> None:
    frame, spans = calls(True)
    found = run(frame, spans=spans, slo=E2E)
    finding = the(found, "cross_region")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "network",
        "cross_region",
        ["cross_region"],
    )
    assert (finding.evidence["region"], finding.evidence["peer_region"]) == (
        "eu-west-1",
        "us-east-1",
    )
    assert finding.fix is not None
    # As the network took before, a call.
    assert finding.fix.parameters == {
        "network_ms": pytest.approx(finding.evidence["network_ms_reference"], abs=1e-3)
    }


def test_silent_without_regions_or_where_they_always_differed() -> None:
    for frame, spans in (calls(False), calls(True, always=True)):
        found = run(frame, spans=spans, slo=E2E)
        assert of(found, "cross_region") is None
        assert found.verdict.stage == "network"


def test_without_regions_a_constant_gap_is_distance_and_a_varying_one_or_one_region_is_not() -> (
    None
):
    rng = np.random.default_rng(7)
    varying = rng.lognormal(7.3, 0.6, N)
    for gap, region, fires in (
        (2_000.0, None, True),
        (varying, None, False),
        (2_000.0, "eu-west-1", False),
    ):
        frame = requests(N, network_ms=np.where(LATE, gap, 5.0), prefill_ms=300.0, decode_ms=500.0)
        called = calls_of(frame, engine_e2e_ms=800.0)
        attributes = {"cloud.region": region, "server.region": region} if region else {}
        found = run(
            frame,
            calls=[called],
            spans=[spans_of(frame, "POST", "network", 1.0, 100.0, attributes=attributes)],
            slo=E2E,
        )
        finding = of(found, "cross_region")
        assert (finding is not None) == fires
        assert found.verdict.stage == "network"
        if finding is not None:
            assert found.verdict.cause == "cross_region"
            assert (finding.evidence["region"], finding.evidence["gap_ms_now"]) == (None, 2_000.0)
            assert finding.fix is not None
            assert finding.fix.parameters == {"network_ms": 5.0}


@pytest.mark.parametrize(
    ("told", "share", "named"),
    [("peer", 1.0, True), ("own", 1.0, True), ("peer", 0.6, False), ("none", 1.0, False)],
)
def test_from_a_client_alone_first_tokens_are_all_as_much_later_where_calls_came_to_cross_regions(
    told: str, share: float, named: bool
) -> None:
    """Each first token, or most of them, 2.5 s later than before, and calls that tell where they go, by their peer's region or by their own."""
    hit = LATE & (np.random.default_rng(1).random(N) < share)
    frame = requests(
        N,
        first_token_ms=np.where(hit, 2_800.0, 300.0),
        ttft_ms=np.where(hit, 2_800.0, 300.0),
        decode_ms=500.0,
        input_tokens=500,
    )
    spans = []
    for keep, region in ((~LATE, "eu-west-1"), (LATE, "us-east-1")):
        attributes = {
            "peer": {"cloud.region": "eu-west-1", "server.region": region},
            "own": {"cloud.region": region},
            "none": {},
        }[told]
        spans.append(
            spans_of(
                frame,
                "chat m",
                "first_token",
                1.0,
                2_000.0,
                role=ROLE["llm"],
                model="m",
                attributes=attributes,
                keep=keep,
            )
        )
    found = run(frame, spans=spans, slo=E2E)
    assert found.verdict.cause == ("cross_region" if named else "provider_queueing")
    finding = of(found, "cross_region")
    if finding is not None:
        assert (finding.evidence["region"], finding.evidence["peer_region"]) == (
            "eu-west-1",
            "us-east-1",
        )
        assert finding.evidence["added_ms_quick"] == pytest.approx(2_500.0)
