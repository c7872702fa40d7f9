"""Cut answers: the estimate of Kaplan and Meier by hand, and the laws of what is filled in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.models.censored import completed, kaplan_meier


def test_the_estimate_is_the_one_by_hand() -> None:
    # At risk 5, 4, 2: survival 4/5, then 4/5 * 3/4 = 3/5; one cut at 20 leaves without an event; then 3/5 * 1/2.
    lengths, mass = kaplan_meier(
        np.array([10.0, 20.0, 20.0, 30.0, 40.0]), np.array([False, False, True, False, True])
    )
    assert lengths.tolist() == [10.0, 20.0, 30.0]
    assert mass == pytest.approx([0.2, 0.2, 0.3])


def test_without_cuts_the_estimate_is_the_share() -> None:
    lengths, mass = kaplan_meier(np.array([1.0, 1.0, 5.0, 9.0]), np.zeros(4, dtype=bool))
    assert dict(zip(lengths.tolist(), mass.tolist(), strict=True)) == pytest.approx(
        {1.0: 0.5, 5.0: 0.25, 9.0: 0.25}
    )


def test_the_hidden_half_comes_back() -> None:
    dice = np.random.default_rng(0)
    full = dice.integers(1, 1_000, 20_000).astype(float)
    limit = np.where(dice.random(20_000) < 0.5, 200.0, np.inf)
    cut = full > limit
    seen = np.minimum(full, limit)
    filled = completed(seen, cut, ["r"] * 20_000, seed=1)
    for level in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(filled, level) == pytest.approx(np.quantile(full, level), rel=0.04)


ROWS = st.lists(
    st.tuples(st.integers(0, 9), st.booleans(), st.sampled_from("ab")), min_size=1, max_size=40
)


@given(ROWS)
def test_a_cut_answer_only_grows_and_only_to_a_length_its_route_has_seen(
    rows: list[tuple[int, bool, str]],
) -> None:
    outputs, cut = np.array([float(row[0]) for row in rows]), np.array([row[1] for row in rows])
    routes = [row[2] for row in rows]
    filled = completed(outputs, cut, routes, seed=3)
    assert (filled[~cut] == outputs[~cut]).all()
    for index in np.flatnonzero(cut):
        longer = {
            outputs[i]
            for i in range(len(rows))
            if not cut[i] and routes[i] == routes[index] and outputs[i] > outputs[index]
        }
        assert filled[index] in longer if longer else filled[index] == outputs[index]


def test_the_same_seed_fills_in_the_same() -> None:
    outputs = np.arange(200.0)
    cut = outputs % 3 == 0
    np.testing.assert_array_equal(
        completed(outputs, cut, ["r"] * 200, seed=4), completed(outputs, cut, ["r"] * 200, seed=4)
    )
