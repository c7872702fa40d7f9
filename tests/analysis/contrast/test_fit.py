"""Traits that explain durations, and that shuffled durations have none."""

import numpy as np

from overrun.analysis.contrast.attributes import Attribute
from overrun.analysis.contrast.fit import fit, halves
from overrun.analysis.contrast.traits import Traits


def _traits(n: int, rng: np.random.Generator, noise: int = 12) -> Traits:
    out = Traits(n)
    for at in range(noise):
        out.numbers(f"size {at}", rng.normal(size=n))
        out.add(f"setting {at}", Attribute(rng.integers(0, 4, n), ["a", "b", "c", "d"], None))
    return out


def test_a_setting_that_parts_late_ones_is_the_first_term_with_its_ms() -> None:
    rng = np.random.default_rng(1)
    there = rng.random(400) < 0.3
    traits = _traits(400, rng)
    traits.flags("filtered", there)
    traits.flags("filtered as well", there)
    y = rng.normal(1000.0, 50.0, 400) + 5000.0 * there
    found = fit(y, traits, np.arange(400), there)
    first = found.terms[0]
    assert {first.name, *(one.name for one, _, _ in first.alike)} == {
        "filtered",
        "filtered as well",
    }
    assert abs(first.apart_ms - 5000.0) < 30.0
    assert abs(first.carried_ms - 5000.0) < 30.0
    assert first.text in ("filtered", "filtered as well")
    assert np.array_equal(first.slow, there)
    assert first.p < 1e-12
    assert len(found.terms) == 1


def test_a_line_has_its_slope_and_says_that_more_is_slower() -> None:
    rng = np.random.default_rng(2)
    tokens = rng.integers(50, 900, 500).astype(float)
    traits = _traits(500, rng)
    traits.numbers("output_tokens", tokens)
    y = 300.0 + 12.0 * tokens + rng.normal(0.0, 80.0, 500)
    [term] = fit(y, traits, np.arange(500), y > np.median(y)).terms
    assert (term.name, term.candidate.form, term.up) == ("output_tokens", "line", True)
    assert abs(term.apart_ms - 12.0) < 0.2


def test_a_second_trait_is_sought_within_the_slow_side_of_the_first() -> None:
    rng = np.random.default_rng(3)
    new, busy = rng.random(600) < 0.5, rng.random(600) < 0.25
    traits = _traits(600, rng)
    traits.flags("new", new)
    traits.flags("busy", busy)
    y = rng.normal(100.0, 10.0, 600) + 400.0 * new + 900.0 * (new & busy)
    found = fit(y, traits, np.arange(600), new).terms
    assert {(one.name, one.within) for one in found} >= {("new", ""), ("busy", "new")}


def test_what_holds_on_one_half_alone_is_no_term() -> None:
    rng = np.random.default_rng(4)
    traces = np.arange(400)
    chosen = halves(traces)
    traits = _traits(400, rng)
    traits.flags("seems", rng.random(400) < 0.5)
    there = traits.columns["seems"].codes > 0
    y = rng.normal(100.0, 10.0, 400) + 200.0 * (there & chosen)
    assert "seems" not in {one.name for one in fit(y, traits, traces, there).terms}


def test_shuffled_durations_find_nothing() -> None:
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(200):
        traits = _traits(150, rng, noise=15)
        y = rng.lognormal(6.0, 0.6, 150)
        found += bool(fit(y, traits, np.arange(150), y > np.median(y)).terms)
    assert found == 0


def test_halves_are_halves_and_keep_traces_whole() -> None:
    traces = np.repeat(np.arange(2_000), 3)
    chosen = halves(traces)
    assert 0.46 < chosen.mean() < 0.54
    assert all(len(set(chosen[traces == at])) == 1 for at in range(50))
