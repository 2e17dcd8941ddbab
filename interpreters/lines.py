"""Outlines the independent computations of replicas. In goes a module over groups; out comes one in which every
device has operations of its own (`ranks.explicit`). Work without communication along some axes of the mesh becomes a
function, called for the devices of each replica. So an analysis that walks a function once walks one replica for
all."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from distir.dialects.dist import CallOp
from distir.dialects.dist.attributes import placement
from distir.dialects.dist.calls import is_grouped
from distir.interpreters.entry import entry_function
from distir.interpreters.ranks import Group, Lines, axes_of, called_by, explicit, group_of

AxesOfFunctions = dict[str, frozenset[str]]
"""Of each function over a group, the axes along which its devices meet or differ."""


def by_lines(module: ModuleOp, entry: str = "main") -> ModuleOp:
    """The module itself if no function is over a group; otherwise a new one in which every device has operations of its own, with a function of what the
    devices of a line do by themselves, as far as there are such axes and groups are whole."""
    group = group_of(module)
    if group is None or not _is_regular(module, group):
        return explicit(module)
    met = _communicating_axes(module, group)
    calls = [name for op in entry_function(module, entry).body.block.ops if (name := called_by(op))]
    cut = [axis for axis, size in group.sizes.items() if size > 1]
    axes = frozenset(axis for axis in cut if 2 * sum(axis not in met[name] for name in calls) > len(calls))
    called = {name for function in _grouped(module) for op in function.body.block.ops if (name := called_by(op))}
    return explicit(module, Lines(axes, frozenset(name for name in called if axes and met[name].isdisjoint(axes))))


def _grouped(module: ModuleOp) -> list[FuncOp]:
    return [op for op in module.body.block.ops if isinstance(op, FuncOp) and is_grouped(op)]


def _is_regular(module: ModuleOp, group: Group) -> bool:
    """Whether every placed value, and every call, is on whole groups."""

    def is_whole(devices: Sequence[int]) -> bool:
        blocks = [devices[i : i + group.count] for i in range(0, len(devices), group.count)]
        return all(b[0] % group.count == 0 and list(b) == [*range(b[0], b[0] + group.count)] for b in blocks)

    for function in _grouped(module):
        for op in function.walk():
            values = (*op.results, *(a for region in op.regions for block in region.blocks for a in block.args))
            if not all(is_whole(on.devices) for v in values if (on := placement(v.type)) is not None):
                return False
            if isinstance(op, CallOp) and called_by(op) and not is_whole(op.devices):
                return False
    return True


def _communicating_axes(module: ModuleOp, group: Group) -> AxesOfFunctions:
    """Of every function that is called; devices of one that is not over a group may meet along all axes."""
    functions = {function.sym_name.data: function for function in _grouped(module)}
    found: AxesOfFunctions = {}

    def of(name: str) -> frozenset[str]:
        if name not in found and name in functions:
            found[name] = frozenset[str]().union(*map(of_operation, functions[name].body.block.ops))
        return found.setdefault(name, frozenset(group.sizes))

    def of_operation(op: Operation) -> frozenset[str]:
        return axes_of(op) if (name := called_by(op)) is None else of(name)

    for name in functions:
        of(name)
    return found
