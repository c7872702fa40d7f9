"""Which spans stand beside each other as calls of one kind, whoever does their work?"""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.span_tree import Tree, siblings

# span, parent, service, stage, name, start and duration in ms: two searches in a row, each asked of another service.
ASKED = [
    (1, None, "app", "other", "POST /ask", 0.0, 1000.0),
    (2, 1, "app", "network", "POST", 10.0, 300.0),
    (3, 2, "search", "other", "POST /search", 12.0, 296.0),
    (4, 3, "search", "retrieval", "query", 12.0, 290.0),
    (5, 1, "app", "network", "POST", 311.0, 200.0),
    (6, 5, "search", "other", "POST /search", 313.0, 196.0),
    (7, 6, "search", "retrieval", "query", 313.0, 190.0),
]


def tree(rows: list[tuple[int, int | None, str, str, str, float, float]]) -> Tree:
    return Tree(
        pl.DataFrame(
            [
                {
                    "trace_key": 1,
                    "span_key": span,
                    "parent_key": parent,
                    "service": service,
                    "stage": stage,
                    "name": name,
                    "start_s": start / 1e3,
                    "duration_ms": took,
                    "role": "plain",
                    "depends_on": None,
                    "arguments": None,
                    "input_tokens": None,
                }
                for span, parent, service, stage, name, start, took in rows
            ],
            schema_overrides={
                "parent_key": pl.Int64,
                "depends_on": pl.String,
                "arguments": pl.String,
                "input_tokens": pl.Int64,
            },
        )
    )


def test_requests_to_another_service_for_work_of_a_stage_are_calls_of_that_stage() -> None:
    (group,) = siblings(tree(ASKED), ("retrieval",)).to_dicts()
    assert (group["operation"], group["n"], group["overlap_ms"]) == ("search/query", 2, 0.0)
    assert (group["sum_ms"], group["longest_ms"], group["whole_ms"]) == (
        500.0,
        300.0,
        pytest.approx(501.0),
    )


def test_requests_that_spend_less_than_half_of_their_time_on_it_are_not() -> None:
    short = [(*row[:6], 100.0 if row[3] == "retrieval" else row[6]) for row in ASKED]
    assert not siblings(tree(short), ("retrieval",)).height


def test_requests_to_a_service_that_does_other_work_are_not() -> None:
    assert not siblings(tree(ASKED), ("tool",)).height


def test_some_of_the_requests_keep_their_spans_with_their_parents() -> None:
    both = Tree(
        pl.concat(
            tree(ASKED).frame.with_columns(trace_key=pl.lit(key)).drop("^parent_[^k].*$", "end_s")
            for key in (1, 2, 3, 4)
        )
    )
    for some in (both.some(pl.Series([2, 4])), both.one_in(2)):
        assert (len(some), some.requests) == (14, 2)
        assert some.frame.equals(both.frame.filter(pl.col("trace_key") % 2 == 0))
        assert some.of_parent(some.frame["name"]).equals(
            some.frame["parent_name"].alias("name"), null_equal=True
        )
    assert both.some(pl.Series([1, 2, 3, 4])).frame is both.frame


def test_a_request_without_its_spans_has_what_the_nearest_one_has() -> None:
    keys = pl.Series([2, 3, 4, 5, 6])
    like = np.array([100.0, 290.0, 200.0, 120.0, 300.0])
    held = pl.DataFrame({"trace_key": [4, 6, 6], "ms": [10.0, 20.0, 5.0]})
    whole, some = tree(ASKED), tree(ASKED).one_in(2)
    assert whole.per_request(held, "ms", keys, like).tolist() == [0.0, 0.0, 10.0, 0.0, 25.0]
    assert some.seen(keys).tolist() == [True, False, True, False, True]
    assert some.per_request(held, "ms", keys, like).tolist() == [0.0, 25.0, 10.0, 0.0, 25.0]
    assert some.per_request(held, "ms", keys).tolist() == pytest.approx(
        [0.0, 35.0 / 3.0, 10.0, 35.0 / 3.0, 25.0]
    )
    none = tree(ASKED).some(pl.Series([], dtype=pl.Int64))
    assert none.per_request(held, "ms", keys, like).tolist() == [0.0, 0.0, 10.0, 0.0, 25.0]
