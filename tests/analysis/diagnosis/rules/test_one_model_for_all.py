"""one_model_for_all: lists an easy route beside a hard one, silent when they have models of their own."""

import numpy as np

from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, of, run, the

N = 400
EASY = np.arange(N) % 2 == 0


def routes(**columns: object) -> object:
    return requests(
        N,
        generation_ms=np.where(np.arange(N) % 10 == 1, 9_000.0, 500.0),
        output_tokens=np.where(EASY, 20, 300),
        route=np.where(EASY, "/tag", "/write").tolist(),
        **columns,
    )


def test_listed_without_a_promise() -> None:
    found = run(routes(), slo=E2E)
    finding = the(found, "one_model_for_all")
    assert finding.severity == "info"
    assert (
        finding.evidence["easy_route"],
        finding.evidence["hard_route"],
        finding.evidence["easy_share"],
    ) == ("/tag", "/write", 0.5)
    assert finding.fix is not None
    assert finding.fix.predicted is None
    assert finding.fix.reasons["predicted"]


def test_silent_when_each_route_has_its_model() -> None:
    assert (
        of(
            run(routes(model=np.where(EASY, "small", "large").tolist()), slo=E2E),
            "one_model_for_all",
        )
        is None
    )
