"""How does a command end before its end? Ctrl-C ends it within a second with 130, whatever it waits for, and a reader that has gone ends it in silence."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from contextlib import suppress
from typing import Final, NoReturn

INTERRUPTED: Final = 128 + signal.SIGINT
PIPE_CLOSED: Final = 128 + signal.SIGPIPE
# A command has so long to close what it has open: a compiler or a query that does not listen is left behind.
_GRACE_S: Final = 0.6
_NAME: Final = "overrun-interrupted"
_interrupted = threading.Event()


def within_a_second() -> None:
    """End the process when SIGINT has come and it has not ended by itself: a thread waits for that, since the main one may be inside of compiled code.

    An event loop that listens to signals takes the place of this, as does `by_itself`.
    """
    received, noted = os.pipe()
    os.set_blocking(noted, False)
    signal.set_wakeup_fd(noted, warn_on_full_buffer=False)

    def wait() -> None:
        while signal.SIGINT not in os.read(received, 1):
            pass
        _interrupted.set()
        time.sleep(_GRACE_S)
        as_interrupted()

    threading.Thread(target=wait, name=_NAME, daemon=True).start()


def interrupted() -> bool:
    """Whether Ctrl-C was pressed: what fails after it, such as a query, fails because of it."""
    return _interrupted.is_set()


def as_interrupted() -> NoReturn:
    """End with the code for Ctrl-C. Folders of the process are removed; stores are as after any end of a process."""
    weakref.finalize._exitfunc()  # type: ignore[attr-defined]
    leave(INTERRUPTED)


def others_run() -> bool:
    """Whether threads run besides the main one."""
    return any(
        thread is not threading.main_thread() and thread.name != _NAME
        for thread in threading.enumerate()
    )


def by_itself() -> None:
    """Let the command end in its own time: it has started processes that it must end."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: object) -> NoReturn:
    if number == signal.SIGINT:
        _interrupted.set()
    raise KeyboardInterrupt


def code() -> int:
    """The code of a command that a signal has ended in its own time: that of Ctrl-C, or 0 of a service that was asked to stop."""
    return INTERRUPTED if interrupted() else 0


def reader_has_gone() -> NoReturn:
    """End as a program does whose output nobody reads any more."""
    leave(PIPE_CLOSED)


def leave(code: int = 0) -> NoReturn:
    """End the process at once: Python's own end waits for libraries to be taken apart, and aborts where a thread is still inside of one."""
    import logging

    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # whoever read it has gone, or it is closed
            stream.flush()
    os._exit(code)
