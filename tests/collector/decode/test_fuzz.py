"""A short run of the fuzzer (`make bench-fuzz` is the long one): rows or a refusal, whatever comes, and both decoders agree."""

from tests.benchmarks import fuzz


def test_broken_bodies_are_read_or_refused_and_both_decoders_agree() -> None:
    out = fuzz.run(900, seed=7, memory=False)
    assert out.crashes == []
    assert out.disagreements == []
    for kind in ("traces", "metrics", "traces JSON", "metrics JSON"):
        assert out.kinds[f"{kind} read 1"] > 5, "a seed that nothing is read of tests nothing"
        assert out.kinds[f"{kind} refused"] > 5
