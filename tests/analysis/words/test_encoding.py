"""Answers on the wire: numpy's numbers are numbers, everything else that is no answer is refused."""

import subprocess
import sys

import msgspec
import numpy as np
import pytest

from overrun.analysis.words.encoding import encode


class Answer(msgspec.Struct):
    value: float | None
    certain: bool
    n: int


def test_numbers_of_numpy_are_plain() -> None:
    sent = encode(Answer(value=np.float64(1.5), certain=np.bool_(True), n=np.int64(3)))
    assert sent == b'{"value":1.5,"certain":true,"n":3}'
    assert msgspec.json.decode(sent, type=Answer) == Answer(value=1.5, certain=True, n=3)


def test_what_is_no_number_is_null() -> None:
    assert (
        encode(Answer(value=np.float64("nan"), certain=False, n=0))
        == b'{"value":null,"certain":false,"n":0}'
    )


def test_what_steers_a_terminal_is_written_as_an_escape() -> None:
    name = "/rag\u009b31m/\u202eksa/\u200b\u2066\ufeff\x1bé路"
    sent = encode({"route": name})
    assert msgspec.json.decode(sent) == {"route": name}
    assert sent.decode() == '{"route":"/rag\\u009b31m/\\u202eksa/\\u200b\\u2066\\ufeff\\u001bé路"}'


def test_an_object_is_refused() -> None:
    with pytest.raises(TypeError, match="object cannot be sent"):
        encode(object())


RACE = """
from __future__ import annotations
import msgspec, sys, threading, types
from overrun.analysis.words.encoding import decode

sys.setswitchinterval(1e-6)
SOURCE = "from __future__ import annotations\\nimport msgspec\\n" + "".join(
    f"class S{k}(msgspec.Struct):\\n    a: int = 0\\n    b: list[S{k - 1}] = []\\n    c: S{k - 1} | None = None\\n" if k else
    "class S0(msgspec.Struct):\\n    a: int = 0\\n" for k in range(12))

for number in range(300):
    made = types.ModuleType(f"made{number}")
    sys.modules[made.__name__] = made
    exec(SOURCE, made.__dict__)
    together = threading.Barrier(4)

    def read(kind):
        together.wait()
        decode(b'{"a": 1, "b": [{"a": 2}], "c": {"a": 3, "b": [{"a": 4}]}}', kind)

    threads = [threading.Thread(target=read, args=(made.__dict__[f"S{k}"],)) for k in (11, 10, 9, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("alive")
"""


def test_answers_that_hold_one_another_are_read_by_several_threads_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", RACE],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == "alive\n", done.stderr[-2000:]
