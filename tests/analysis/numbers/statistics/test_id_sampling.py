"""Do the ids of what is left tell that a sampler chose by them? Every SDK's way of choosing, and ids that nobody chose."""

import random
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from overrun.analysis.front.report import build
from overrun.analysis.numbers.statistics.id_sampling import share_kept
from overrun.analysis.numbers.window import Window, load, with_share
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import insert, insert_calls, requests, store

SHARE = 0.1
SLO = Slo(e2e_ms=2_000.0)


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def folded(trace: int) -> int:
    return (
        (trace >> 96)
        ^ (trace >> 64 & 0xFFFFFFFF)
        ^ (trace >> 32 & 0xFFFFFFFF)
        ^ (trace & 0xFFFFFFFF)
    )


KEPT: dict[str, Callable[[int], bool]] = {
    "Python": lambda trace: trace % 2**64 < SHARE * 2**64,
    "Go": lambda trace: (trace % 2**64) >> 1 < SHARE * 2**63,
    "Java": lambda trace: abs(signed(trace % 2**64)) < SHARE * 2**63,
    ".NET": lambda trace: abs(signed(trace >> 64)) < SHARE * 2**63,
    "JavaScript": lambda trace: folded(trace) < SHARE * 0xFFFFFFFF,
    "consistent": lambda trace: trace % 2**56 >= (1.0 - SHARE) * 2**56,
}


def ids(n: int, keep: Callable[[int], bool], seed: int = 3) -> list[int]:
    dice, out = random.Random(seed), list[int]()
    while len(out) < n:
        trace = dice.getrandbits(128)
        out += [trace] if keep(trace) else []
    return out


@pytest.mark.parametrize("sdk", KEPT)
def test_each_sampler_by_id_is_told_with_its_share(sdk: str) -> None:
    assert share_kept([f"{one:032x}" for one in ids(1_000, KEPT[sdk])]) == pytest.approx(
        SHARE, rel=0.02
    )
    assert share_kept([f"{one:032x}" for one in ids(60, KEPT[sdk])]) == pytest.approx(
        SHARE, rel=0.1
    )


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("random", ids(2_000, lambda trace: True)),
        ("a tail sampler's", ids(2_000, lambda trace: trace % 7 == 0)),
        ("63 random bits", [one % 2**63 for one in ids(2_000, lambda trace: True)]),
        ("53 random bits", [one % 2**53 for one in ids(2_000, lambda trace: True)]),
        ("a counter's", list(range(1, 2_001))),
        (
            "a clock's in the upper half",
            [
                (0x6925_0000 + k << 96) + one % 2**96
                for k, one in enumerate(ids(2_000, lambda trace: True))
            ],
        ),
        (
            "of version 7",
            [
                one % 2**62 | 1 << 63 | 0x0192_F000_0000_7000 << 64
                for one in ids(2_000, lambda trace: True)
            ],
        ),
        ("too few", ids(49, KEPT["Python"])),
    ],
)
def test_ids_that_nobody_chose_tell_nothing(name: str, made: list[int]) -> None:
    assert share_kept([f"{one:032x}" for one in made]) is None, name


def test_a_window_is_weighed_by_what_its_ids_tell() -> None:
    n = 400
    chosen = ids(n, KEPT["Python"])
    frame = requests(n, prefill_ms=np.where(np.arange(n) % 50 == 0, 3_000.0, 300.0)).with_columns(
        trace_hi=pl.Series([one >> 64 for one in chosen], dtype=pl.UInt64),
        trace_lo=pl.Series([one % 2**64 for one in chosen], dtype=pl.UInt64),
    )
    con = store()
    con.register("frame", frame)
    con.execute("insert into requests by name select * from frame")
    insert_calls(con)
    report = build(con, Window(), SLO)
    assert report.goodput.ratio == pytest.approx(0.98)
    assert report.goodput.rps == pytest.approx(10.0 * 0.98, rel=0.03)
    [said] = [check for check in report.data_quality if check.check == "sampling"]
    assert (said.status, "10 %" in said.detail) == ("warn", True)
    # A few requests of the same store are told by the others' ids.
    rows = load(con, Window(route="/nowhere")).rows
    assert with_share(con, rows, None, None).is_empty()


def test_marks_of_a_sampler_outrank_the_ids() -> None:
    con = store()
    insert(con, requests(100, prefill_ms=300.0, sampling="th:8", sample_weight=2.0))
    rows = load(con, Window()).rows
    assert with_share(con, rows, None, None)["sample_weight"].unique().to_list() == [2.0]
