"""The model's names for operations. In goes an operation with the calls around it; out comes the path of its module
in PyTorch (for an update, of the parameter's module), or its node in ONNX.

Layers that are one function have the first one's names in its body. Their calls say how these differ: `dist.renamed = {"blocks.0" = "blocks.7"}`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, NameLoc, NoneAttr, StringAttr, SymbolRefAttr, UnknownLoc
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

MODULE = "dist.module"
"""The path of the module of a PyTorch model that an operation is of: `blocks.3.mlp.up`."""
UPDATES = "dist.updates"
"""The path of the module whose parameters, or their state, an operation updates, and nothing else."""
RENAMED = "dist.renamed"
"""Of a call: beginnings of names in the function that is called, and what stands there instead where this call runs it."""
NAMES = frozenset({"onnx_node_name", MODULE, UPDATES, RENAMED})
"""Attributes that name an operation, and say nothing about what it does."""

MOST_WHOLE = 8
"""Names without a part in common that a call says of its function: more are those of an ONNX file's nodes (`Gemm_12`)."""

Renaming = tuple[tuple[str, str], ...]
"""Of a call: beginnings of names, and what stands there instead."""
Renamings = tuple[Renaming, ...]
"""Of the calls around an operation, the innermost first."""


def model_name(op: Operation, around: Renamings = ()) -> str:
    """What the model calls an operation, inside these calls; empty if it has no name there."""
    found = (op.attributes.get(name) for name in (MODULE, "onnx_node_name", UPDATES))
    own = next((name.data for name in found if isinstance(name, StringAttr)), "")
    return renamed(own, around) if around and own else own


def renaming_of(call: Operation) -> Renaming:
    """What a call says of names."""
    said = call.attributes.get(RENAMED)
    if not isinstance(said, DictionaryAttr):
        return ()
    return tuple([(old, new.data) for old, new in said.data.items() if isinstance(new, StringAttr)])


def inside(call: Operation, around: Renamings) -> Renamings:
    """Of the operations that a call runs."""
    return (renaming, *around) if (renaming := renaming_of(call)) else around


def reached_by(op: Operation) -> Renamings:
    """Of the calls of one way in which an operation is reached."""
    found, seen = list[Renaming](), set[str]()
    while (function := _function_of(op)) is not None and (name := function.sym_name.data) not in seen:
        seen.add(name)
        module = function.parent_op()
        calls = () if module is None else (each for each in module.walk() if _calls(each, name))
        if (call := next(iter(calls), None)) is None:
            break
        found += filter(None, [renaming_of(call)])
        op = call
    return tuple(found)


def _function_of(op: Operation) -> FuncOp | None:
    around = op.parent_op()
    while around is not None and not isinstance(around, FuncOp):
        around = around.parent_op()
    return around


def _calls(op: Operation, name: str) -> bool:
    callee = op.properties.get("callee")
    return isinstance(callee, SymbolRefAttr) and callee.string_value() == name


@cache
def renamed(name: str, around: Renamings) -> str:
    """A name inside calls: of what fits, the longest beginning counts."""
    for renaming in around:
        fits = [(old, new) for old, new in renaming if name.startswith(old) and name[len(old) :][:1] in ("", ".", "/")]
        if fits:
            old, new = max(fits, key=lambda pair: len(pair[0]))
            name = new + name[len(old) :]
    return name


def rename(call: Operation, pairs: Iterable[tuple[str, str]]) -> None:
    """Notes on a call that where its function's operations have the first names of these pairs, the model has the second ones. Many names without a
    path (`Gemm_12`), which have no beginning in common with others, stay those of the first layer."""
    found, whole = dict[str, str](), dict[str, str]()
    for old, new in dict.fromkeys(pairs):
        mine, theirs = (re.split(r"(?=[./])", name) for name in (old, new))
        if old == new or not old or not new:
            continue
        if len(mine) != len(theirs) or len(mine) == 1:
            whole[old] = new
            continue
        while len(mine) > 1 and mine[-1] == theirs[-1]:
            mine.pop()
            theirs.pop()
        key, value = "".join(mine), "".join(theirs)
        if found.setdefault(key, value) != value:
            found[old] = new
    call.attributes.pop(RENAMED, None)
    if len(whole) <= MOST_WHOLE:
        found |= whole
    if found:
        call.attributes[RENAMED] = DictionaryAttr({old: StringAttr(new) for old, new in found.items()})


def module_of_tensor(name: str) -> str:
    """The module of a parameter, whose name has one part more, or of state that has the parameter's name in its own (`state.head.weight.exp_avg`)."""
    parts = name.split(".")
    parts = parts[1:-1] if parts[0] == "state" and len(parts) > 2 else parts
    return ".".join(parts[:-1])


def name_updates(function: FuncOp) -> None:
    """Gives operations without a name that only update tensors of one module that module, as far as results say what they update."""
    last = function.body.block.last_op
    assert last is not None
    needed: dict[SSAValue, set[str]] = defaultdict(set)
    """By the update of which modules; of what the model computes, and gives, an empty name."""
    said = function.res_attrs.data if function.res_attrs is not None else [DictionaryAttr({})] * len(last.operands)
    for value, attributes in zip(last.operands, said, strict=True):
        role, name = attributes.data.get("dist.role"), attributes.data.get("dist.name")
        is_update = isinstance(role, StringAttr) and role.data in ("parameter", "state")
        needed[value].add(module_of_tensor(name.data) if is_update and isinstance(name, StringAttr) else "")
    for op in list(function.body.block.ops)[-2::-1]:
        needs = {""} if model_name(op) else set[str]().union(*(needed[result] for result in op.results))
        if len(needs) == 1 and (module := next(iter(needs))) and not model_name(op):
            op.attributes[UPDATES] = StringAttr(module)
        for value in op.operands:
            needed[value] |= needs


def names_from_locations(module: ModuleOp) -> None:
    """Gives operations with a location by name, `loc("blocks.3.mlp.up")`, that name, which passes carry."""
    for op in module.walk():
        if isinstance(op.location, NameLoc) and not model_name(op):
            op.attributes[MODULE] = op.location.desc


def locations_from_names(module: ModuleOp) -> None:
    """Gives operations that the model names, and that have no location, one by that name."""
    for op in module.walk():
        if isinstance(op.location, UnknownLoc) and (name := model_name(op)):
            op.location = NameLoc(StringAttr(name), NoneAttr())
