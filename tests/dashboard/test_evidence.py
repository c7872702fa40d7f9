"""Evidence in words: units from the ends of keys, intervals beside their values, hostile text harmless, no value left out in silence."""

import pytest

from overrun.dashboard import evidence


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("tail_ms", 2996.7, "3.00 s"),
        ("grew_to_s", 84.02, "84.0 s"),
        ("cached_ratio", 0.14, "14.0 %"),
        ("offered_ratio", 2.3, "2.3"),
        ("hit_ratio_before", 0.87, "87.0 %"),
        ("held_ms_slow", 1500.0, "1.50 s"),
        ("input_tokens_slow", 4182, "4,182 tokens"),
        ("odds_ratio", 0.5, "0.5"),
        ("long_share_now", 0.25, "25.0 %"),
        ("claims_ms", {"prefill": 306.2, "queue": 68.1}, "prefill 306 ms; queue 68 ms"),
        ("share_of_excess", 1.0, "100.0 %"),
        ("offered_tps", 29908.66, "29,909 tokens/s"),
        ("offered_rps", 24.0158, "24 requests/s"),
        ("output_tokens", 512, "512 tokens"),
        ("n", 2700, "2,700"),
        ("kv_p95", 0.99419, "0.994"),
        ("growing", True, "yes"),
        ("slope", -0.25, "−0.25"),
        ("instances", ["gpu-0", "gpu-1"], "gpu-0, gpu-1"),
        ("by_instance", {"gpu-0": 1.5, "gpu-1": 2}, "gpu-0 1.5; gpu-1 2"),
        ("operation", "<script>x</script>", "&lt;script&gt;x&lt;/script&gt;"),
        ("names", {"<b>": "<i>"}, "&lt;b&gt; &lt;i&gt;"),
    ],
)
def test_a_value_is_said_with_its_unit(key: str, value: object, said: str) -> None:
    assert evidence.said(key, value) == said


def test_an_interval_stands_beside_its_value_and_nothing_else_is_dropped() -> None:
    found = evidence.rows(
        {
            "n": 10,
            "share_of_excess": 0.5,
            "share_of_excess_interval": [0.25, 0.75],
            "operation": None,
            "odd_interval": [1, 2],
        }
    )
    assert found == [
        ("requests judged", "10"),
        ("share of excess", "50.0 % <small>(25.0 % to 75.0 %)</small>"),
        ("odd interval", "1, 2"),
    ]


def test_long_lists_are_cut_and_say_so() -> None:
    assert evidence.said("values", list(range(20))).endswith("5 and 14 more")
