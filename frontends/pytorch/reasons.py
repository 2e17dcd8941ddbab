"""Takes an exception that tracing a user's code raised, and gives one line: what is wrong, where in that code, what to do."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

PACKAGES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]), sysconfig.get_paths()["stdlib"])
"""Where code lies that is not the user's."""


def reason_of(error: BaseException) -> str:
    """One line."""
    kind, said = type(error).__name__, (str(error).strip() or "no reason given").splitlines()[0]
    where = where_of(error)
    if kind in ("DataDependentOutputException", "GuardOnDataDependentSymNode"):
        return (
            f"it reads the value of a tensor as a number or a condition{where}, which a program does not know: compute with the "
            "tensor (torch.where instead of if), or leave it out of the step"
        )
    if kind in ("DynamicOutputShapeException", "UnsupportedDynamicOutputShape"):
        return (
            f"the shape of a result of {said} depends on values{where}, and a program has fixed shapes: compute with masks of "
            "fixed shape instead"
        )
    return f"{kind}: {said}{where}"


def where_of(error: BaseException) -> str:
    """The innermost line of the user's code, in parentheses."""
    return place_of(traceback.extract_tb(error.__traceback__))


def place_of(frames: Sequence[traceback.FrameSummary]) -> str:
    """The same, of a stack."""
    for frame in reversed(frames):
        if is_of_user(frame.filename):
            return f" ({Path(frame.filename).name}:{frame.lineno}: {(frame.line or '').strip()})"
    return ""


def is_of_user(path: str) -> bool:
    """Whether a file is the user's, or of a package that the user has."""
    return ("site-packages" in path or not path.startswith(PACKAGES)) and not path.startswith((PACKAGES[0], "<"))
