"""Numbers that tell what is decided by them. In go numbers that a run of a step has changed in Python (counters);
out come numbers of the same value that note each decision, so that a run can be tried as a later one that decides otherwise."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

Site = tuple[str, int, int]
"""A place of the user's code: file, line, and instruction."""

_ARITHMETIC = "add sub mul truediv floordiv mod pow lshift rshift and or xor".split()
_UNARY = "neg pos abs invert".split()
_COMPARISONS = "lt le gt ge eq ne".split()


class Decisions:
    """What was decided by watched numbers since `start`, by its place: `flipped` is where the other way is taken."""

    def __init__(self) -> None:
        self.sites: dict[Site, None] = {}
        self.escaped: Site | None = None
        """Where a number was taken in a way that cannot be followed: as a key, or as a plain number."""
        self.flipped: Site | None = None

    def decide(self, outcome: bool) -> bool:
        site = _site()
        self.sites.setdefault(site)
        return outcome != (site == self.flipped)

    def escape(self) -> None:
        self.escaped = self.escaped or _site()

    def watched(self, value: int | float) -> Any:
        return _Integer(value, self) if isinstance(value, int) else _Float(value, self)


def place(site: Site) -> str:
    """How a message names it."""
    return f"{Path(site[0]).name}:{site[1]}"


def is_watched(value: object) -> bool:
    return isinstance(value, _Watched)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """The number itself, of one that is watched."""
    if isinstance(value, _Integer):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, _Float) else value


def _site() -> Site:
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, frame.f_lasti


def _rewatched(decisions: Decisions, result: Any) -> Any:
    if type(result) in (int, float):
        return decisions.watched(result)
    if type(result) is tuple:
        return tuple(_rewatched(decisions, each) for each in cast("tuple[Any, ...]", result))
    return result


class _Watched:
    decisions: Decisions

    def __new__(cls, value: int | float, decisions: Decisions) -> Any:
        made: Any = cast(Any, super()).__new__(cls, value)
        made.decisions = decisions
        return made


class _Integer(_Watched, int):
    """A whole number that tells."""


class _Float(_Watched, float):
    """A floating number that tells."""


def _calculation(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *others: _rewatched(self.decisions, function(plain(self), *map(plain, others)))


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: _rewatched(self.decisions, function(plain(other), plain(self)))


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        result = function(plain(self), plain(other))
        return self.decisions.decide(result) if type(result) is bool else result

    return compare


def _escaping(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def escape(self: Any) -> Any:
        self.decisions.escape()
        return function(plain(self))

    return escape


def _bool(self: Any) -> bool:
    return self.decisions.decide(bool(plain(self)))


def _define(kind: type) -> None:
    """The methods of a watched number; those that a plain one has not are left out."""
    for name in [*_ARITHMETIC, "divmod"]:
        function = divmod if name == "divmod" else getattr(operator, f"{name}_" if name in ("and", "or") else name)
        if hasattr(kind, f"__{name}__"):
            setattr(kind, f"__{name}__", _calculation(function))
            setattr(kind, f"__r{name}__", _reflected(function))
    for name in _UNARY:
        if hasattr(kind, f"__{name}__"):
            setattr(kind, f"__{name}__", _calculation(getattr(operator, name)))
    for name in _COMPARISONS:
        setattr(kind, f"__{name}__", _comparison(getattr(operator, name)))
    kind.__round__ = _calculation(round)  # type: ignore[attr-defined]
    kind.__bool__ = _bool  # type: ignore[attr-defined]
    for name, function in (("hash", hash), ("int", int), ("float", float)):
        setattr(kind, f"__{name}__", _escaping(function))
    for name, function in (("repr", repr), ("str", str)):
        setattr(kind, f"__{name}__", lambda self, function=function: function(plain(self)))
    kind.__format__ = lambda self, specification: format(plain(self), specification)  # type: ignore[attr-defined]
    kind.__reduce__ = lambda self: (type(plain(self)), (plain(self),))  # type: ignore[attr-defined]


_define(_Integer)
_define(_Float)
