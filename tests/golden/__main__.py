"""Does the product answer as it did? Answers every input anew and compares with a record, which it writes where there is none.

python -m tests.golden                      # compare with build/golden/record.zst, or write it
python -m tests.golden --write              # write it anew, after an intended change that the commit names
python -m tests.golden --only corpus/       # inputs whose name contains this
python -m tests.golden --small --write      # the record that the suite compares with
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import sys
import time
from pathlib import Path

from tests.conftest import ROOT
from tests.golden import inputs, record

RECORD = ROOT / "build" / "golden" / "record.zst"
SMALL = Path(__file__).parent / "small.zst"
_SHOWN = 40


def main(arguments: list[str]) -> int:
    """Compare, or write; returns 1 where an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="write the record anew")
    parser.add_argument("--small", action="store_true", help="the inputs that the suite answers")
    parser.add_argument("--record", type=Path, help="the record to compare with")
    parser.add_argument("--only", default="", help="inputs whose name contains this")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args(arguments)
    path = asked.record or (SMALL if asked.small else RECORD)
    known = inputs.small() if asked.small else inputs.inputs()
    wanted = [one for one in known if asked.only in one.name]
    began = time.monotonic()
    now = _answered([one.name for one in wanted], asked.small, asked.processes)
    print(
        f"{len(now)} inputs, {sum(map(len, now.values())):,} answers, {time.monotonic() - began:.0f} s"
    )
    if asked.write or not path.exists():
        record.write(now, path)
        print(f"written: {path} ({path.stat().st_size / 1e6:.1f} MB)")
        return 0
    before = {name: row for name, row in record.read(path).items() if asked.only in name}
    found = record.differences(before, now)
    for line in found[:_SHOWN]:
        print(line)
    print(f"{len(found)} of {len(now)} inputs are answered otherwise than in {path}")
    return 1 if found else 0


def _answered(names: list[str], small: bool, processes: int) -> dict[str, record.Answers]:
    """The answers by input, made by processes of their own; the long ones first."""
    order = sorted(names, key=lambda name: not name.startswith(("recording", "laboratory")))
    one = functools.partial(record.named, some=small)
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=40) as pool:
        return dict(pool.imap_unordered(one, order))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
