"""How do several texts lie in one? Packed by a separator, with a hash of what is too long to compare."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.collector.process.remember import remembered

SEPARATOR, ESCAPE = "\x1f", "\x1b"


@remembered(65_536)
def text_hash(text: str) -> int:
    """64 bits of BLAKE2b."""
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )


def unpacked(text: str | None) -> list[str]:
    """The texts packed into one."""
    if text is None:
        return []
    return [
        part.replace(ESCAPE + "1", SEPARATOR).replace(ESCAPE + "0", ESCAPE)
        for part in text.split(SEPARATOR)
    ]


def packed(lists: pa.ListArray) -> pa.StringArray:
    """Each list of texts as one text, null if the list is empty; `unpacked` in SQL is the way back."""
    texts = lists.flatten()
    if len(texts) and pc.any(pc.match_substring_regex(texts, f"[{SEPARATOR}{ESCAPE}]")).as_py():
        escaped = pc.replace_substring(
            pc.replace_substring(texts, ESCAPE, ESCAPE + "0"), SEPARATOR, ESCAPE + "1"
        )
        lists = pa.ListArray.from_arrays(
            pc.cast(
                pc.cumulative_sum(pa.array(np.append(0, pc.list_value_length(lists).fill_null(0)))),
                pa.int32(),
            ),
            escaped,
        )
    joined = pc.binary_join(lists, SEPARATOR)
    return pc.if_else(
        pc.equal(pc.list_value_length(lists), 0), pa.scalar(None, pa.string()), joined
    )
