"""An answer shown again and again: on a terminal, and where output is a file."""

import os
import pty
import sys
import termios

import pytest

from overrun.analysis.front import live
from overrun.analysis.words.errors import AnalysisError


def test_without_a_terminal_each_answer_is_one_text(capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["first", AnalysisError("no server answers"), "third"])

    def ask(_: int) -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    live.show(ask, "title", 0.0, rounds=3)
    assert capsys.readouterr().out == "first\n\noverrun: no server answers\n\nthird\n\n"


def test_a_terminal_is_put_back_when_somebody_quits(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    with (
        open(theirs, "w", closefd=False) as out,
        open(theirs, closefd=False) as keys,
    ):
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stdin", keys)
        monkeypatch.setenv("COLUMNS", "40")
        monkeypatch.setenv("LINES", "6")
        asked: list[int] = []

        def ask(width: int) -> str:
            asked.append(width)
            os.write(ours, b"q")
            return "\n".join(f"line {number}" for number in range(9))

        live.show(ask, "overrun top", 60.0)
    shown = ""
    while not shown.endswith("\x1b[?1049l"):  # a terminal hands over what is there so far
        shown += os.read(ours, 65_536).decode()
    assert asked == [40]
    assert shown.startswith("\x1b[?1049h")
    assert shown.endswith("\x1b[?25h\x1b[?1049l")
    assert "line 2" in shown
    assert "line 3" not in shown
    assert "a higher terminal shows the rest" in shown
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_a_closed_keyboard_ends_it() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    assert live._quits(reading, 60.0)
    os.close(reading)
    assert not live._quits(None, 0.0)
