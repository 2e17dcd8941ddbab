"""Breaks down the devices' time and the fullest device's memory by module, layer and kind, in the model's names. In
goes a program opened on a machine; out come sums over all devices and calls, exact and found from each distinct
function once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal, NamedTuple

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, OpResult
from xdsl.traits import SymbolTable

from distir.dialects.dist import CallOp
from distir.interpreters.costs import SLOWDOWN
from distir.interpreters.model_names import Renaming, model_name, module_of_tensor, renamed, renaming_of
from distir.interpreters.simulate.axes import Axes
from distir.interpreters.simulate.bodies import Call
from distir.interpreters.simulate.expansion import COMPUTE, Expansion, Scope
from distir.interpreters.simulate.live_tensors import LiveTensors, Peak
from distir.interpreters.simulate.timing import TimedBody

By = Literal["module", "layer", "kind", "operation"]
HOPS = 8
"""How far the module of a communication is looked for: it is that of what made its operand."""


class Item(NamedTuple):
    """Operations that are alike."""

    module: str
    """What the model calls them; for what has no name there what its function's operations have in common, else `(function)`."""
    operation: str
    kind: str
    assumed: tuple[str, ...] = ()
    """The operators in it of which nothing says what they do."""

    @property
    def communicates(self) -> bool:
        return self.kind not in COMPUTE


class Part(NamedTuple):
    """What one module, layer or kind takes."""

    name: str
    picoseconds: int
    """Summed over all streams of all devices."""
    communication_picoseconds: int
    """Of these, those of communication."""
    bytes: int
    """At the peak of one device."""


Times = Counter[Item]


@dataclass
class Adder:
    """Sums times over calls; those of a function are remembered by the function and the costs that it has there."""

    expansion: Expansion
    _known: dict[tuple[TimedBody, str], Times] = field(default_factory=dict[tuple[TimedBody, str], Times])

    def of(self, scope: Scope) -> Times:
        key = (scope.frame, scope.function.name)
        if (known := self._known.get(key)) is None:
            known = self._known[key] = self._sum(scope)
        return known

    def _sum(self, scope: Scope) -> Times:
        times, calls = Times(), Counter[tuple[TimedBody, str, Renaming]]()
        of_one = common(map(model_name, scope.function.operations)) if scope.depth else ""  # the entry is of no module
        unnamed = of_one or f"({scope.function.name})"
        for stage, step in zip(self.expansion.stages(scope), scope.body.steps, strict=True):
            if isinstance(step, Call):
                inside = self.expansion.inside(scope, step, stage.op)
                self.of(inside)
                calls[inside.frame, inside.function.name, renaming_of(stage.op)] += 1
            elif not stage.moves:
                computes = stage.kind in COMPUTE and len(stage.streams) == 1
                assumed = self.expansion.program.known.library.costs.assumed(stage.op) if computes else ()
                item = Item(module_of(stage.op) or unnamed, stage.op.name, stage.kind, assumed)
                times[item] += stage.picoseconds * len(stage.streams)
                if stage.slows:
                    times[item._replace(kind=SLOWDOWN)] += stage.slowdown * len(stage.slows)
        for (frame, name, renaming), count in calls.items():
            for item, picoseconds in self._known[frame, name].items():
                named = item._replace(module=renamed(item.module, (renaming,))) if renaming else item
                times[named] += count * picoseconds
        return times


def module_of(op: Operation, hops: int = HOPS) -> str:
    """What the model calls an operation; of a communication, what it calls the maker of its first operand, in the function that is called for it."""
    if (name := model_name(op)) or not op.name.startswith("dist.") or not op.operands or not hops:
        return name
    value = op.operands[0]
    if not isinstance(value, OpResult):
        return ""
    if not isinstance(call := value.op, CallOp):
        return module_of(call, hops - 1)
    callee = SymbolTable.lookup_symbol(call, call.callee)
    returned = callee.body.block.last_op if isinstance(callee, FuncOp) and not callee.is_declaration else None
    maker = returned.operands[value.index].owner if returned is not None else None
    return renamed(module_of(maker, hops - 1), (renaming_of(call),)) if isinstance(maker, Operation) else ""


def common(modules: Iterable[str]) -> str:
    """The parts that all names begin with; of those that are not empty."""
    names = [re.split(r"(?=[./])", name) for name in set(modules) if name]
    parts = takewhile(lambda level: len(set(level)) == 1, zip(*names, strict=False))
    return "".join(level[0] for level in parts)


def layer_of(module: str) -> str:
    """`blocks.3` of `blocks.3.mlp.up`, `/h.3` of `/h.3/attn/MatMul`: up to the first part with a number; without one, the first part."""
    if match := re.match(r"(.*?\b\w*?\d+)(?=[./]|$)", module):
        return match[1]
    return re.split(r"(?<=.)[./]", module, maxsplit=1)[0]


def breakdown(expansion: Expansion, peak: Peak | None, by: By) -> list[Part]:
    """The parts, those that take longest first. Times add up to what all devices are busy with, bytes to the peak's."""
    scope = expansion.entry()
    times = Adder(expansion).of(scope)
    name: Callable[[Item], str] = {
        "module": lambda item: item.module,
        "layer": lambda item: layer_of(item.module),
        "kind": lambda item: item.kind,
        "operation": lambda item: item.operation,
    }[by]
    total, communication = Counter[str](), Counter[str]()
    for item, picoseconds in times.items():
        total[name(item)] += picoseconds
        communication[name(item)] += picoseconds * item.communicates
    memory = memory_parts(peak, scope.function.name, by) if peak is not None else Counter[str]()
    names = [n for n in dict.fromkeys((*total, *memory)) if total[n] or memory[n]]
    parts = [Part(n, total[n], communication[n], memory[n]) for n in names]
    return sorted(parts, key=lambda part: (-part.picoseconds, -part.bytes, part.name))


def assumed_shares(expansion: Expansion) -> dict[str, float]:
    """The operators of which nothing says what they do, each with its share (of a kernel: that of the kernel) of what all devices are busy with."""
    times = Adder(expansion).of(expansion.entry())
    total, found = max(sum(times.values()), 1), Counter[str]()
    for item, picoseconds in times.items():
        for name in item.assumed:
            found[name] += picoseconds
    return {name: picoseconds / total for name, picoseconds in found.most_common()}


def memory_parts(peak: Peak, entry: str, by: By) -> Counter[str]:
    """Bytes of a peak by part; `entry` is the name of the program's entry."""
    memory = Counter[str]()
    for tensors, module in zip(peak.live_tensors, _modules(peak.live_tensors, entry), strict=True):
        names = {"module": module, "layer": layer_of(module), "kind": tensors.role}
        memory[names.get(by, tensors.operation or tensors.role)] += tensors.total_bytes
    return +memory


def _modules(live_tensors: Iterable[LiveTensors], entry: str) -> list[str]:
    """The module of each."""
    found: list[str] = []
    for tensors in live_tensors:
        if tensors.module or tensors.path or tensors.operation:
            found.append(tensors.module or f"({tensors.path[-1] if tensors.path else entry})")
            continue
        found.append(module_of_tensor(tensors.name) or f"({tensors.role})")
    return found


def places(module: ModuleOp, devices: int) -> list[str]:
    """Where each device is along the axes, as in `pp 0, dp 1, tp 0`; empty texts where the program does not say."""
    axes = Axes.of_module(module)
    named = [zip(axes.sizes, axes.place(device), strict=True) for device in range(devices)]
    return [", ".join(f"{axis} {place}" for (axis, size), place in each if size > 1) for each in named]
