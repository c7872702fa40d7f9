"""SLO texts: the three live dialects, the presets, and errors that name the way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.analysis.words.errors import SloError
from overrun.analysis.words.slo import PRESETS, Slo, parse_slo


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft:100 tpot:50 e2el:790", Slo(ttft_ms=100, tpot_ms=50, e2e_ms=790)),
        ("ttft:1000 e2el:5000", Slo(ttft_ms=1000, e2e_ms=5000)),
        ("time_to_first_token:100 inter_token_latency:3.4", Slo(ttft_ms=100, tpot_ms=3.4)),
        ("time_to_first_token:100 request_latency:250", Slo(ttft_ms=100, e2e_ms=250)),
        ("ttft: 0.2 tpot: 0.02", Slo(ttft_ms=200, tpot_ms=20)),
        ("ttft:1.5, itl:0.1, request_latency:2.5", Slo(ttft_ms=1500, itl_ms=100, e2e_ms=2500)),
        ("request_latency:5", Slo(e2e_ms=5000)),
        ("ttft:1000 itl:50", Slo(ttft_ms=1000, itl_ms=50)),
        ("ttft=0.5s e2e=2500ms", Slo(ttft_ms=500, e2e_ms=2500)),
        ("ttft_ms:700", Slo(ttft_ms=700)),
        ("chat", PRESETS["chat"]),
        ("chat e2el:5000", Slo(ttft_ms=1500, e2e_ms=5000)),
        ("chat percentile:99", Slo(ttft_ms=1500, e2e_ms=2500, percentile=99, goodput_target=0.99)),
        (
            "chat percentile:99 goodput_target:0.9",
            Slo(ttft_ms=1500, e2e_ms=2500, percentile=99, goodput_target=0.9),
        ),
        (
            "chat percentile:99 goodput_target:0.99",
            Slo(ttft_ms=1500, e2e_ms=2500, percentile=99, goodput_target=0.99),
        ),
        ("batch", Slo(e2e_ms=60_000)),
    ],
)
def test_text_is_read_in_the_unit_of_its_dialect(text: str, slo: Slo) -> None:
    assert parse_slo(text) == slo


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tfft:100", "nearest known is 'ttft'"),
        ("chatt", "nearest known is 'chat'"),
        ("ttft:fast", "ttft:500"),
        ("ttft:0", "above 0"),
        ("ttft:-5", "above 0"),
        ("ttft:nan", "above 0"),
        ("ttft:1e999", "above 0"),
        ("", "sets no limit"),
        ("percentile:99", "sets no limit"),
        ("ttft:100 ttft_ms:200", "limits ttft twice"),
        ("percentile:30 ttft:1", "50 to 99.9"),
        ("chat goodput_target:0", "0 to 1"),
        ("request_latency:250", "request_latency:250ms or request_latency:250s"),
        ("ttft:0.5 tpot:60", "seconds or as milliseconds"),
        ("ntpot:0.1", "use tpot"),
        ("chat voice", "voice"),
        ("x" * 2000, "2000 characters"),
    ],
)
def test_error_names_the_value_and_the_remedy(text: str, says: str) -> None:
    with pytest.raises(SloError, match=says):
        parse_slo(text)


@given(st.text(max_size=200))
def test_any_text_gives_an_slo_or_its_own_error(text: str) -> None:
    try:
        slo = parse_slo(text)
    except SloError:
        return
    assert slo.limits()
    assert all(value > 0 for value in slo.limits().values())
