"""`merge-functions`: functions that do the same become one, which all their callers call.

Where it stands: after `microbatch`, before anything searches or lowers bodies: stages of equal layers are then one set of functions, so that
what follows takes time for distinct stages only."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from distir.interpreters.model_names import NAMES, model_name, rename, renamed, renaming_of
from distir.interpreters.shared import Shared, texts_of_regions
from distir.interpreters.walk import values_read
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
        names = Names()
        for function in calls_first(op):
            _call_the_first(function, same, names)
            if function.sym_visibility == StringAttr("private"):
                names.note(function)
                kept = first.setdefault(_content(function, shared), function)
                if kept is not function:
                    same[function.sym_name.data] = kept.sym_name.data
                    op.body.block.erase_op(function)
        _call_the_first(op, same, names)  # what the entry does not reach


@dataclass
class Names:
    """What operations of functions are called, calls opened, in order: those of equal functions correspond."""

    known: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def note(self, function: FuncOp) -> None:
        found = self.known[function.sym_name.data] = list[str]()
        for op in function.body.block.ops:
            if isinstance(op, AnyCall):
                found += self.of(op, op.callee.string_value())
            else:
                found.append(model_name(op))

    def of(self, call: Operation, callee: str) -> list[str]:
        renaming = renaming_of(call)
        return [renamed(name, (renaming,)) for name in self.known.get(callee, ())]


def _call_the_first(op: Operation, same: Mapping[str, str], names: Names) -> None:
    for call in op.walk():
        if isinstance(call, AnyCall) and (callee := same.get(call.callee.string_value())) is not None:
            rename(call, zip(names.known[callee], names.of(call, call.callee.string_value()), strict=True))
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
        found.append((op.name, _attributes(op, shared), operands, results, texts_of_regions(op)))
    return tuple(found)


def _attributes(op: Operation, shared: Shared) -> Hashable:
    return _numbered(op.properties, shared), _numbered(op.attributes, shared, *NAMES)


def _numbered(attributes: Mapping[str, Hashable], shared: Shared, *without: str) -> frozenset[tuple[str, int]]:
    return frozenset((key, shared.number(value)) for key, value in attributes.items() if key not in without)
