"""What a model calls an operation. In goes an operation, with what the calls around it say; out comes the path of its module in PyTorch, or its node in
ONNX.

Layers that are one function have the first one's names in its body. Their calls say how these differ: `dist.renamed = {"blocks.0" = "blocks.7"}`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, NameLoc, NoneAttr, StringAttr, UnknownLoc
from xdsl.ir import Operation

MODULE = "dist.module"
"""The path of the module of a PyTorch model that an operation is of: `blocks.3.mlp.up`."""
RENAMED = "dist.renamed"
"""Of a call: beginnings of names in the function that is called, and what stands there instead where this call runs it."""
NAMES = frozenset({"onnx_node_name", MODULE, RENAMED})
"""Attributes that name an operation, and say nothing about what it does."""

Renaming = tuple[tuple[str, str], ...]
"""Of a call: beginnings of names, and what stands there instead."""
Renamings = tuple[Renaming, ...]
"""Of the calls around an operation, the innermost first."""


def model_name(op: Operation, around: Renamings = ()) -> str:
    """What the model calls an operation, inside these calls; empty if it has no name there."""
    found = (op.attributes.get(name) for name in (MODULE, "onnx_node_name"))
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
    """Notes on a call that where its function's operations have the first names of these pairs, the model has the second ones. Names without a path
    (`Gemm_12`) have no beginning in common with others, and stay those of the first layer."""
    found: dict[str, str] = {}
    for old, new in dict.fromkeys(pairs):
        mine, theirs = (re.split(r"(?=[./])", name) for name in (old, new))
        if old == new or len(mine) != len(theirs) or len(mine) == 1:
            continue
        while len(mine) > 1 and mine[-1] == theirs[-1]:
            mine.pop()
            theirs.pop()
        key, value = "".join(mine), "".join(theirs)
        if found.setdefault(key, value) != value:
            found[old] = new
    call.attributes.pop(RENAMED, None)
    if found:
        call.attributes[RENAMED] = DictionaryAttr({old: StringAttr(new) for old, new in found.items()})


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
