"""A short run of the fuzzer (`make bench-fuzz` is the long one): rows or a refusal, whatever comes, and the decoders agree."""

from collections import Counter
from pathlib import Path

from tests.benchmarks import fuzz, fuzz_wire


def test_broken_bodies_are_read_or_refused_and_the_decoders_agree(tmp_path: Path) -> None:
    wire = fuzz_wire.Wire(tmp_path, fuzz.seeds())
    out = fuzz.run(1_000, seed=7, memory=False, wire=wire)
    assert wire.close() == 0
    assert out.crashes == []
    assert out.disagreements == []
    for kind in ("traces", "metrics", "logs", "traces JSON", "metrics JSON", "logs JSON"):
        assert out.kinds[f"{kind} read 1"] > 5, "a seed that nothing is read of tests nothing"
        assert out.kinds[f"{kind} refused"] > 5
    sent = Counter(kind.split()[0] for kind in out.kinds if kind.split()[0] in fuzz_wire.KINDS)
    assert set(sent) == set(fuzz_wire.KINDS)
    assert out.kinds["bodies 200"] + out.kinds["calls OK"] > 10


def test_json_that_reads_otherwise_than_its_protobuf_is_seen() -> None:
    """A comparison that cannot fail would prove nothing."""
    for signal, bodies in fuzz.seeds().items():
        message = fuzz.otlp_json.REQUESTS[signal]()
        message.ParseFromString(bodies[0])
        text = fuzz.as_otlp_json(message)
        assert not fuzz.disagree(signal, text, bodies[0])
        assert fuzz.disagree(signal, b"{}", bodies[0])
        assert fuzz.disagree(signal, b"[]", bodies[0])
