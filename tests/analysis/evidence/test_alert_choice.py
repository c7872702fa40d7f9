"""What alerts are worth on parts that they were not learned on: against a slow reference, and who is chosen in doubt."""

import numpy as np
import pytest

from overrun.analysis.evidence.alert_choice import (
    ALERTS,
    EARLY,
    LATE,
    RIGHT,
    TOLD,
    Trials,
    choose,
    cuts,
    hold_out,
)


def trials(seed: int, thresholds: int = 7, parts: int = 5) -> Trials:
    rng = np.random.default_rng(seed)
    events = rng.integers(1, 4, parts).astype(float)
    counts = np.zeros((5, thresholds, parts))
    counts[ALERTS] = rng.integers(0, 6, (thresholds, parts))
    counts[RIGHT] = rng.binomial(counts[ALERTS].astype(int), 0.5)
    counts[LATE] = rng.binomial((counts[ALERTS] - counts[RIGHT]).astype(int), 0.3)
    counts[TOLD] = rng.binomial(np.broadcast_to(events, (thresholds, parts)).astype(int), 0.6)
    counts[EARLY] = rng.binomial(counts[TOLD].astype(int), 0.8)
    part_of = np.repeat(np.arange(parts), events.astype(int))
    return Trials(
        np.arange(float(thresholds)), counts, np.zeros((thresholds, len(part_of))), events, part_of
    )


def fit(made: Trials, parts: list[int]) -> int:
    """The threshold of the best F1 over some parts, the highest of equals, those that are early enough first."""
    best, at = (-3.0, -1.0), 0
    for row in range(len(made.thresholds)):
        alerts, right, _, told, early = made.counts[:, row, parts].sum(axis=1)
        precision, recall = right / max(alerts, 1.0), told / max(made.events[parts].sum(), 1.0)
        good = 0.0 if precision + recall == 0.0 else 2.0 * precision * recall / (precision + recall)
        good = -2.0 if not alerts else good if told and 2.0 * early >= told else good - 1.0
        if (round(good, 12), row) > best:
            best, at = (round(good, 12), row), row
    return at


@pytest.mark.parametrize("seed", range(20))
def test_each_part_is_scored_by_what_was_learned_on_all_others(seed: int) -> None:
    made = trials(seed)
    held, all_parts = hold_out(made, plain=True), list(range(5))
    assert held.row == fit(made, all_parts)
    for k in all_parts:
        others = [q for q in all_parts if q != k]
        assert held.rows[k] == fit(made, others)
        assert held.counts[:, k].tolist() == made.counts[:, fit(made, others), k].tolist()
        # Whom to choose for part k is asked of the others, each scored without itself and without k.
        inner = sum(made.counts[:, fit(made, [p for p in others if p != q]), q] for q in others)
        precision, recall = (
            inner[RIGHT] / max(inner[ALERTS], 1.0),
            inner[TOLD] / made.events[others].sum(),
        )
        assert held.worths[k] == pytest.approx(
            2.0 * precision * recall / max(precision + recall, 1e-12)
        )


def test_the_plain_indicator_is_kept_unless_another_is_better_by_more_than_its_error() -> None:
    """Four of four breaches told by four alerts (F1 1), and three of four by five (F1 0.67): two of six breaches are no proof, forty of forty are."""
    for parts, chosen in ((2, 0), (40, 1)):
        events = np.ones(parts)
        counts = np.zeros((2, 5, 1, parts))
        counts[1, [ALERTS, RIGHT, TOLD, EARLY]] = 1.0
        counts[0, [ALERTS, TOLD, EARLY]] = 1.0
        counts[0, RIGHT, 0, : (3 * parts + 2) // 4] = 1.0
        made = [
            hold_out(
                Trials(np.zeros(1), one, np.zeros((1, parts)), events, np.arange(parts)),
                plain=k == 0,
            )
            for k, one in enumerate(counts)
        ]
        assert choose(made, parts)[0] == chosen


def test_an_indicator_that_rises_after_breaches_or_too_late_is_not_chosen() -> None:
    made = trials(1)
    made.counts[EARLY] = 0.0
    assert choose([hold_out(made, plain=True)], 5) == (None, [None] * 5)


def test_a_window_is_cut_midway_between_breaches_into_ten_parts_at_most() -> None:
    assert cuts(np.array([100.0, 300.0]), np.array([150.0, 400.0]), 0.0, 500.0).tolist() == [
        0.0,
        225.0,
        500.0,
    ]
    onsets = np.arange(100.0, 10_100.0, 100.0)
    edges = cuts(onsets, onsets + 10.0, 0.0, 10_200.0)
    assert len(edges) == 11
    assert (np.diff(edges) > 0.0).all()
