"""Ctrl-C ends a command with 130 whatever it is doing, and a reader that has gone ends it in silence."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from overrun import ending
from tests.conftest import ROOT

PATIENCE_S = 60.0
DEAF = "    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n        pass\n"
WORK = {
    "deaf": f"while True:\n{DEAF}",
    "listens": "time.sleep(60)\n",
    "fails": "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    time.sleep(0.1)\n    raise RuntimeError\n",
}


@pytest.mark.parametrize("work", WORK)
def test_ctrl_c_ends_a_command_with_130_and_leaves_no_folder(work: str, tmp_path: Path) -> None:
    indented = "".join(f"    {line}\n" for line in WORK[work].splitlines())
    code = (
        "import sys, tempfile, time\nfrom overrun import cli\n"
        "def work(path):\n"
        "    folder = tempfile.TemporaryDirectory()\n    print('ready', flush=True)\n"
        f"{indented}"
        "from overrun.analysis.front import ledger\nledger.entries = work\n"
        "sys.argv = ['overrun', 'fix', 'ledger']\ncli.main()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, said) == (ending.INTERRUPTED, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["admin", "man"], ["admin", "config"]])
def test_a_reader_that_has_gone_ends_a_command_in_silence(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "overrun", *command],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        cwd=ROOT,
    )
    os.close(writing)
    assert (done.stderr, done.returncode) == (b"", ending.PIPE_CLOSED)
