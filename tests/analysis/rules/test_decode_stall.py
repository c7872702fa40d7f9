"""decode_stall: fires when prefill of others slows tokens more than before, silent when tokens are slower whatever is read beside them."""

import numpy as np
import pytest

from analysis.stalls import odds_ratio
from tests.analysis.rules.cases import E2E, causes, of, run, the
from tests.analysis.rules.engine_world import LATE, N, engine


def test_fires_when_reading_others_prompts_stalls_answers() -> None:
    # Since the onset each token read beside an answer costs it 0.5 ms: 4,000 of them 2 s.
    found = run(engine(prefill_cost=np.where(LATE, 0.5, 0.0)), slo=E2E)
    finding = the(found, "decode_stall")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == ("decode", "decode_stall", ["decode_stall"])
    assert finding.evidence["odds_ratio"] > 20.0
    assert finding.evidence["odds_interval"][0] > 1.5
    assert finding.evidence["prefill_ms"] > finding.evidence["batch_ms"]
    assert "--enable-chunked-prefill" in (finding.fix.detail if finding.fix else "")


def test_silent_when_slow_tokens_come_whatever_is_read() -> None:
    slow = LATE & (np.random.default_rng(1).random(N) < 0.5)
    found = run(engine(token_ms=np.where(slow, 42.0, 10.0)), slo=E2E)
    assert found.verdict.stage == "decode"
    assert of(found, "decode_stall") is None
    assert any(out.what == "decode_stall" for out in found.verdict.ruled_out)


def test_odds_ratio_and_its_interval() -> None:
    # 30 of 40 against 10 of 40: (30.5 x 30.5) / (10.5 x 10.5) = 8.44.
    odds = odds_ratio(np.r_[np.ones(30), np.zeros(10)], np.r_[np.ones(10), np.zeros(30)])
    assert odds.ratio == pytest.approx(8.44, abs=0.01)
    assert odds.low == pytest.approx(np.exp(np.log(8.44) - 1.96 * np.sqrt(2 / 30.5 + 2 / 10.5)), rel=0.01)
