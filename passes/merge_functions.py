"""`merge-functions`: functions that do the same become one, which all their callers call.

Where it stands: after `microbatch`, before anything searches or lowers bodies: stages of equal layers are then one set of functions, so that
what follows takes time for distinct stages only."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from distir.interpreters.shared import Shared
from distir.interpreters.walk import NAMES, values_read
from distir.passes.structure import AnyCall, calls_first


@dataclass(frozen=True)
class MergeFunctionsPass(ModulePass):
    """Keeps the first of private functions with equal operations, wired alike, and equal types and attributes; names of the model do not count.

    Requires: level 1 or 2. Ensures: equal semantics; functions that are public, or that the entry does not reach, stay."""

    name = "merge-functions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        shared = Shared()
        first: dict[Hashable, FuncOp] = {}
        same: dict[str, str] = {}
        for function in calls_first(op):
            _call_the_first(function, same)
            if function.sym_visibility == StringAttr("private"):
                kept = first.setdefault(_content(function, shared), function)
                if kept is not function:
                    same[function.sym_name.data] = kept.sym_name.data
                    op.body.block.erase_op(function)
        _call_the_first(op, same)  # what the entry does not reach


def _call_the_first(op: Operation, same: Mapping[str, str]) -> None:
    for call in op.walk():
        if isinstance(call, AnyCall) and (callee := same.get(call.callee.string_value())) is not None:
            call.properties["callee"] = SymbolRefAttr(callee)


def _content(function: FuncOp, shared: Shared) -> Hashable:
    """Equal for functions that do the same."""
    block = function.body.block
    numbers: dict[SSAValue, int] = {argument: i for i, argument in enumerate(block.args)}
    found: list[Hashable] = [_numbered({**function.properties, **function.attributes}, shared, "sym_name")]
    for op in block.ops:
        if len(values_read(op)) > len(op.operands):
            return id(function)
        operands = tuple(numbers[value] for value in op.operands)
        numbers.update({result: len(numbers) + i for i, result in enumerate(op.results)})
        results = tuple(shared.number(result.type) for result in op.results)
        found.append((op.name, _attributes(op, shared), operands, results, tuple(map(str, op.regions))))
    return tuple(found)


def _attributes(op: Operation, shared: Shared) -> Hashable:
    return _numbered(op.properties, shared), _numbered(op.attributes, shared, *NAMES)


def _numbered(attributes: Mapping[str, Hashable], shared: Shared, *without: str) -> frozenset[tuple[str, int]]:
    return frozenset((key, shared.number(value)) for key, value in attributes.items() if key not in without)
