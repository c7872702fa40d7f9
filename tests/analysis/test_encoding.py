"""Answers on the wire: numpy's numbers are numbers, everything else that is no answer is refused."""

import msgspec
import numpy as np
import pytest

from analysis.encoding import encode


class Answer(msgspec.Struct):
    value: float | None
    certain: bool
    n: int


def test_numbers_of_numpy_are_plain() -> None:
    sent = encode(Answer(value=np.float64(1.5), certain=np.bool_(True), n=np.int64(3)))
    assert sent == b'{"value":1.5,"certain":true,"n":3}'
    assert msgspec.json.decode(sent, type=Answer) == Answer(value=1.5, certain=True, n=3)


def test_what_is_no_number_is_null() -> None:
    assert encode(Answer(value=np.float64("nan"), certain=False, n=0)) == b'{"value":null,"certain":false,"n":0}'


def test_an_object_is_refused() -> None:
    with pytest.raises(TypeError, match="object cannot be sent"):
        encode(object())
