"""Interruptions by a person or the system. In goes a command; out comes its exit status, or 128 + the signal, as
shells have it, after temporaries are removed and one line is said. It imports nothing of distir, so that this holds
from a command's first moment."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from io import TextIOWrapper
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A signal asks this process to end. (A plain KeyboardInterrupt inside an import makes Python end itself by the signal.)"""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


def interruptible(tool: str, command: Callable[[], int]) -> int:
    """The exit status of a command; 130 after Ctrl-C, 143 after SIGTERM. What a terminal's encoding lacks is printed escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, _interrupt) for number in _WORDS} if is_main else {}
    try:
        return command()
    except KeyboardInterrupt as error:
        number = signal.Signals(error.number) if isinstance(error, Interrupted) else signal.SIGINT
        print(f"{tool}: {_WORDS[number]}", file=sys.stderr)
        return 128 + number
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)
