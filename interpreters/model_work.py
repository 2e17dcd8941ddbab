"""The work of a model on any machine. In goes a sequential program; out come the flops of its contractions by
element type, and the tokens of a sample. Each contraction counts once however often the program recomputes it
(activation checkpointing). Model flops utilization is made of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import IntegerType, ModuleOp, TensorType
from xdsl.dialects.func import CallOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Operation

from distir.interpreters.entry import Port, arguments_of, entry_function
from distir.interpreters.machines import Machine
from distir.interpreters.model_names import NAMES
from distir.interpreters.shared import texts_of_regions
from distir.interpreters.walk import Enter, Walk
from distir.interpreters.work import Kind, work_of

CONTRACTIONS = (Kind.MATMUL, Kind.ATTENTION, Kind.ATTENTION_GRADIENT)


@dataclass(frozen=True)
class Tokens:
    """How many tokens a sample has, and why."""

    per_sample: int
    input: str
    """The integer input whose dims, but for the batch's, they are."""


@dataclass(frozen=True)
class ModelWork:
    """The work of one run of a sequential program."""

    flops: Mapping[str, int]
    """Of contractions, by the element type of their operands; a multiplication and an addition are two."""
    tokens: Tokens | None
    executed: Mapping[Operation, int] = field(default_factory=dict[Operation, int])
    """How often each operation of its functions computes something new."""

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values())

    def peak_flops_per_second(self, machine: Machine, devices: int) -> float:
        """What that many devices of a machine do together at the peaks of these element types, each for the time that it takes there."""
        total, counts = 0.0, Counter(map(machine.group_of, range(devices)))
        for group, count in counts.items():
            seconds = sum(flops / machine.groups[group].device.peak(dtype) for dtype, flops in self.flops.items())
            total += count * self.total_flops / seconds if seconds else 0.0
        return total


def model_work(module: ModuleOp, batch: Mapping[int, int]) -> ModelWork:
    """The work of a program of level 1 or 2 with static shapes, whose arguments have these batch dims."""
    numbers = _Numbers()
    walk = Walk(module, default=numbers.run).register([_Calls()])
    entry = entry_function(module)
    walk.call(entry.sym_name.data, tuple(numbers.fresh() for _ in entry.body.block.args))
    return ModelWork(dict(numbers.flops), tokens_of(arguments_of(entry), batch), dict(numbers.executed))


def tokens_of(ports: list[Port], batch: Mapping[int, int]) -> Tokens | None:
    """Those of the first integer input that has other dims than the batch's (ids of tokens): the product of these. None where there is none."""
    for index, dim in batch.items():
        if ports[index].role == "input" and isinstance(ports[index].type, TensorType):
            type_ = cast(TensorType[Any], ports[index].type)
            element, shape = type_.element_type, type_.get_shape()
            if isinstance(element, IntegerType) and element.width.data > 8 and len(shape) > 1:
                return Tokens(prod(shape[:dim] + shape[dim + 1 :]), ports[index].name)
    return None


@register_impls
class _Calls(InterpreterFunctions):
    @impl(CallOp)
    def call(self, interpreter: Interpreter, op: CallOp, args: PythonValues) -> PythonValues:
        return (Enter(op.callee.string_value(), args),)


@dataclass
class _Numbers:
    """Values as numbers, equal where the same operation computes them from equal ones. What is made first is counted."""

    flops: Counter[str] = field(default_factory=Counter[str])
    executed: Counter[Operation] = field(default_factory=Counter[Operation])
    _known: dict[tuple[object, ...], PythonValues] = field(default_factory=dict[tuple[object, ...], PythonValues])
    _work: dict[Operation, tuple[str, int]] = field(default_factory=dict[Operation, tuple[str, int]])
    _count: int = 0

    def fresh(self) -> int:
        self._count += 1
        return self._count

    def run(self, op: Operation, args: PythonValues) -> PythonValues:
        attributes = frozenset((n, a) for n, a in op.attributes.items() if n not in NAMES and not n.startswith("dist."))
        inner = texts_of_regions(op)
        key = (op.name, args, frozenset(op.properties.items()), attributes, tuple(op.result_types), inner)
        if (known := self._known.get(key)) is None:
            known = self._known[key] = tuple(self.fresh() for _ in op.results)
            self.executed[op] += 1
            dtype, flops = self._work_of(op)
            if flops:
                self.flops[dtype] += flops
        return known

    def _work_of(self, op: Operation) -> tuple[str, int]:
        if op not in self._work:
            work, first = work_of(op), op.operands[0].type if op.operands else None
            element = str(cast(TensorType[Any], first).element_type) if isinstance(first, TensorType) else ""
            self._work[op] = element, work.flops if work.kind in CONTRACTIONS else 0
        return self._work[op]
