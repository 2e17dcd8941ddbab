"""Ends a run that cannot go on. In goes an error and its place; out comes one line on stderr and exit status 1.
Files and folders that a run needs at its end are checked before it begins."""

from __future__ import annotations

import fcntl
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

FOLDER = Path(__file__).resolve().parent
_LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
"""What gloo says on the ranks that wait for one that has ended."""


def end(message: str) -> NoReturn:
    """A mistake that every rank finds, said by one rank."""
    if os.environ.get("RANK", "0") == "0":
        print(f"train.py: {message}", file=sys.stderr, flush=True)
    sys.exit(1)


def end_here(message: str) -> NoReturn:
    """A mistake that this rank alone finds."""
    print(f"train.py: {message}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(1)  # not through destructors, which may wait for other ranks


def failed(error: Exception, step: int) -> NoReturn:
    """Says what this rank was doing: the step, and the line of the program in its folder."""
    frames = traceback.extract_tb(error.__traceback__)
    here = [Path(f.filename).name + f":{f.lineno}" for f in frames if Path(f.filename).parent == FOLDER]
    lines = [line for line in here if line.startswith("ranks_")] or here
    where = [f"rank {os.environ.get('RANK', '0')}", *([f"step {step}"] if step else []), *lines[-1:]]
    reason = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {reason[0]}" if reason else type(error).__name__
    if any(each in str(error) for each in _LOST):
        what = "lost another rank, which has ended"
    end_here(f"{', '.join(where)}: {what}")


def no_output(path: Path) -> str | None:
    """Why a file cannot be written there; None if it can, as far as one sees."""
    if path.is_dir():
        return "is a folder"
    if path.exists() and not path.is_file():
        return "is no file"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return None if os.access(path.parent, os.W_OK) else f"the folder {path.parent} may not be written"


def hold(folder: Path) -> str | None:
    """Makes the folder of checkpoints this run's alone, until the process ends; else why it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "another run writes there"
    except FileExistsError:
        return "is no folder"
    except OSError as error:
        if not folder.is_dir():
            return error.strerror or str(error)
    return None if os.access(folder, os.W_OK) else "the folder may not be written"
