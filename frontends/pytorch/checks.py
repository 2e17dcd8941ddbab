"""Conditions that only decide whether an error is raised (`if (x < 0).any(): raise ...`, `assert (x >= 0).all()`), while a step is traced.
In goes the frame that asks a tensor for such a condition; out comes the answer with which nothing is raised. Nothing else depends on it, so
the program is that of every run that ends."""

from __future__ import annotations

import ast
import dis
import linecache
import sys
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import TypeGuard
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException

from distir.frontends.pytorch.reasons import is_of_user, place_of

Span = tuple[tuple[int, int], tuple[int, int]]
"""Line and column where something begins and ends."""

_TRACING = str(Path(__file__).parent / "tracing.py")
"""Above it are no frames of the user's step."""

_MAKING_ONE = ("bool", "any", "all")


@contextmanager
def checks_that_pass() -> Generator[dict[str, None]]:
    """While such conditions have the answer with which nothing is raised. Gives the places in the user's code where one is asked."""
    places: dict[str, None] = {}
    before = Tensor.__bool__

    def truth(value: Tensor) -> bool:
        try:
            return before(value)
        except DataDependentOutputException:
            if value.dtype != torch.bool or (answer := answer_that_raises_nothing(sys._getframe(1))) is None:  # pyright: ignore[reportPrivateUsage]
                raise
            places[place_of(traceback.extract_stack())] = None
            return answer

    truth.__name__ = "__bool__"  # modes that see functions of torch know it by that
    with patch.object(Tensor, "__bool__", truth):
        yield places


def answer_that_raises_nothing(frame: FrameType) -> bool | None:
    """What the condition that the frame asks for must be, so that it goes on; None where more depends on it than an error."""
    asked = _position(frame)
    if _is_caught(frame):
        return None
    statement = _statement(frame.f_code.co_filename, asked[0]) if asked is not None else None
    if asked is None or statement is None:
        return None
    of_test, whole = _span(statement.test), _span(statement)
    if asked != whole and not _within(asked, of_test):
        return None
    if any(isinstance(each, ast.NamedExpr | ast.IfExp | ast.Await) for each in ast.walk(statement.test)):
        return None
    leaves = list(_leaves(statement.test, isinstance(statement, ast.Assert)))
    if any(not _is_plain(leaf, asked) for leaf, _ in leaves):
        return None
    jumps = [each.offset for each in dis.get_instructions(frame.f_code) if _jumps_in(each, (whole[0], of_test[1]))]
    if frame.f_lasti in jumps and len(jumps) == len(leaves):
        return leaves[jumps.index(frame.f_lasti)][1]
    is_jump = frame.f_lasti in jumps
    found = {wanted for leaf, wanted in leaves if is_jump or asked == whole or _within(asked, _span(leaf))}
    return found.pop() if len(found) == 1 else None


def _jumps_in(instruction: dis.Instruction, test: Span) -> bool:
    """Whether it is the jump of a condition of a test: there is one for each, in order, and where it is in the line is not sure."""
    if "JUMP" not in instruction.opname or "IF" not in instruction.opname or instruction.positions is None:
        return False
    line, _, column, _ = instruction.positions
    return line is not None and column is not None and test[0] <= (line, column) < test[1]


def _is_caught(frame: FrameType | None) -> bool:
    """Whether code of the user's around it goes on after an error."""
    while frame is not None and frame.f_code.co_filename != _TRACING:
        at = _position(frame)
        if at is not None and is_of_user(frame.f_code.co_filename):
            for each in _statements(frame.f_code.co_filename):
                if _catches(each) and _span(each.body[0])[0] <= at[0] < _span(each.body[-1])[1]:
                    return True
        frame = frame.f_back
    return False


def _catches(statement: ast.stmt) -> TypeGuard[ast.Try | ast.With]:
    """Whether what is behind a statement is run after an error in its body."""
    if isinstance(statement, ast.With):
        return any("suppress" in ast.unparse(item.context_expr) for item in statement.items)
    return isinstance(statement, ast.Try) and any(not isinstance(h.body[-1], ast.Raise) for h in statement.handlers)


def _position(frame: FrameType) -> Span | None:
    """Of the instruction that a frame is at."""
    positions = islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, last, column, end = next(positions, (None, None, None, None))
    return None if line is None or last is None or column is None or end is None else ((line, column), (last, end))


def _statement(path: str, begin: tuple[int, int]) -> ast.If | ast.Assert | None:
    """The innermost statement around a position, if all that it does is to raise an error."""
    innermost: ast.stmt | None = None
    for each in _statements(path):
        first, last = _span(each)
        if first <= begin < last and (innermost is None or _span(innermost)[0] <= first):
            innermost = each
    if isinstance(innermost, ast.If) and len(innermost.body) == 1 and isinstance(innermost.body[0], ast.Raise):
        return innermost
    return innermost if isinstance(innermost, ast.Assert) else None


@lru_cache(64)
def _statements(path: str) -> list[ast.stmt]:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return []
    return [each for each in ast.walk(tree) if isinstance(each, ast.stmt)]


def _leaves(test: ast.expr, wanted: bool) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions that are joined by `and`, `or` and `not`, and what each must be."""
    if isinstance(test, ast.BoolOp):
        for each in test.values:
            yield from _leaves(each, wanted)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _leaves(test.operand, not wanted)
    else:
        yield test, wanted


def _is_plain(leaf: ast.expr, asked: Span) -> bool:
    """Whether what is asked inside of a condition is the condition itself, and no other function is given it."""
    inside = (each for each in ast.walk(leaf) if each is not leaf)
    if any(
        isinstance(each, ast.BoolOp) or (isinstance(each, ast.UnaryOp) and isinstance(each.op, ast.Not))
        for each in inside
    ):
        return False
    if not isinstance(leaf, ast.Call) or not _within(asked, _span(leaf)) or asked == _span(leaf):
        return True
    return isinstance(leaf.func, ast.Name) and leaf.func.id in _MAKING_ONE


def _span(node: ast.expr | ast.stmt) -> Span:
    last, end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return (node.lineno, node.col_offset), (last, end)


def _within(inner: Span, outer: Span) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]
