"""How is an answer shown again and again? On the terminal's other screen until q or Ctrl+C, or as one text after the other where output is no terminal."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from overrun.analysis.front.text_layout import cut
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.errors import CollectorError

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"
_QUIT: Final = ("q", "Q", "\x03", "\x04", "")


def show(ask: Callable[[int], str], title: str, every_s: float, rounds: int | None = None) -> None:
    """Ask, show, wait `every_s` seconds, until somebody quits, or `rounds` times.

    `ask` takes the width in columns. What it raises is shown in the answer's place, and asked again: a server that restarts comes back.
    """
    terminal = sys.stdout.isatty()
    with _screen(terminal) as keys:
        shown = 0
        while rounds is None or shown < rounds:
            size = shutil.get_terminal_size((110, 40))
            try:
                text = ask(size.columns)
            except (AnalysisError, CollectorError) as error:
                text = f"overrun: {error}"
            shown += 1
            if terminal:
                sys.stdout.write(_frame(text, title, every_s, size))
            else:
                sys.stdout.write(f"{text}\n\n")
            sys.stdout.flush()
            if (rounds is None or shown < rounds) and _quits(keys, every_s):
                return


def _frame(text: str, title: str, every_s: float, size: os.terminal_size) -> str:
    """One screen: a line about it, then as many lines of the text as it has room for."""
    head = f"{title}   {datetime.now().astimezone():%H:%M:%S}   every {every_s:g} s   q quits"
    lines = [cut(head, size.columns), "", *text.splitlines()]
    if len(lines) > size.lines:
        lines = [*lines[: size.lines - 1], "... a higher terminal shows the rest"]
    return _HOME + f"{_REST_OF_LINE}\r\n".join(lines) + _REST_OF_LINE + _REST


@contextmanager
def _screen(terminal: bool) -> Iterator[int | None]:
    """The other screen with single keys; the terminal is put back whatever happens. Yields the descriptor of the keys, None without a keyboard."""
    keys = sys.stdin.fileno() if terminal and sys.stdin.isatty() else None
    before = None if keys is None else termios.tcgetattr(keys)
    try:
        if keys is not None:
            tty.setcbreak(keys)
        if terminal:
            sys.stdout.write(_ENTER)
        yield keys
    except KeyboardInterrupt:
        pass
    finally:
        if terminal:
            sys.stdout.write(_LEAVE)
            sys.stdout.flush()
        if keys is not None and before is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _quits(keys: int | None, every_s: float) -> bool:
    """Wait; whether a key was pressed that ends it."""
    end = time.monotonic() + every_s
    while (left := end - time.monotonic()) > 0:
        if keys is None:
            time.sleep(left)
        elif select.select([keys], [], [], left)[0] and os.read(keys, 1).decode("latin-1") in _QUIT:
            return True
    return False
