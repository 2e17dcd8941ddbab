"""The stages of the paper's MLP (see `mlp`), as functions over the devices 0..T-1 of a tensor-parallel group.

Arguments and results are listed device by device. Values of a device travel packed, those of a stage's first unit of
layers apart from the others (`Stages.split`): on stage 0 the first unit's gradients are the program's outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeVar

from xdsl.dialects.builtin import f16
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from benchmarks.paper.program import Function, tensor, tuple_type
from distir.dialects.grad import MatmulGradOp, ReluGradOp

Values = Sequence[SSAValue]
"""One per device of a tensor-parallel group."""

Mode = Literal["only", "first", "later"]
"""Which microbatch it is."""

T_ = TypeVar("T_")


@dataclass(frozen=True)
class Mlp:
    layers: int
    width: int
    element_type: Attribute = f16


@dataclass(frozen=True)
class Configuration:
    """Degrees of data, tensor and pipeline parallelism, microbatches, and samples per step."""

    D: int
    T: int
    P: int
    K: int
    batch: int

    @property
    def rows(self) -> int:
        """Samples of one microbatch on one device."""
        return self.batch // self.D // self.K


class Stages:
    """Makes the functions of one configuration."""

    def __init__(self, model: Mlp, c: Configuration):
        self.c, self.width, self.element_type = c, model.width, model.element_type
        self.ts = range(c.T)
        self.layers = model.layers // c.P
        """Of a stage."""
        assert self.layers * c.P == model.layers, "the original needs as many layers on every stage"
        self.unit = 2 if c.T > 1 else 1
        """Layers that are one function: the period of tensor parallelism."""
        self.functions: list[FuncOp] = []

    def add(self, function: FuncOp) -> FuncOp:
        self.functions.append(function)
        return function

    # What there is on device t.

    def weight(self, layer: int, t: int) -> Attribute:
        """Cut by columns, rows, columns, ..."""
        cut = self.width // self.c.T
        return tensor((cut, self.width) if layer % 2 else (self.width, cut), t, self.element_type)

    def rows(self, t: int, width: int = 0) -> Attribute:
        return tensor((self.c.rows, width or self.width), t, self.element_type)

    def product(self, layer: int, t: int) -> Attribute:
        """The result of a layer's matmul, and the argument of the next layer's; layer -1 is the stage before."""
        return self.rows(t, self.width if layer % 2 else self.width // self.c.T)

    def stash(self, layer: int, t: int) -> list[Attribute]:
        """What a layer's gradients need of the forward: x, unless it is the stage's argument, and y."""
        return ([self.product(layer - 1, t)] if layer else []) + [self.product(layer, t)]

    def split(self, of_layers: Sequence[T_]) -> list[Sequence[T_]]:
        """Of the first unit, and of the others if there are any."""
        return [part for part in (of_layers[: self.unit], of_layers[self.unit :]) if part]

    def weight_types(self, t: int) -> list[Attribute]:
        return [tuple_type(tuple(part)) for part in self.split([self.weight(i, t) for i in range(self.layers)])]

    def stash_types(self, t: int) -> list[Attribute]:
        parts = self.split([self.stash(i, t) for i in range(self.layers)])
        return [tuple_type(tuple(chain.from_iterable(part))) for part in parts]

    def by_device(self, values: Sequence[SSAValue]) -> list[list[SSAValue]]:
        count = len(values) // self.c.T
        return [list(values[t * count : (t + 1) * count]) for t in self.ts]

    def call(
        self, f: Function, callee: FuncOp, operands: Sequence[Sequence[SSAValue]], devices: Sequence[int]
    ) -> list[list[SSAValue]]:
        """Operands and results by device."""
        return self.by_device(f.call(callee, list(chain.from_iterable(operands)), devices))

    # The forward.

    def forward_unit(self) -> FuncOp:
        """Per device: weights, x -> per layer y and relu(y)."""
        arguments = [[*(self.weight(i, t) for i in range(self.unit)), self.product(-1, t)] for t in self.ts]
        f = Function("forward_layers", list(chain.from_iterable(arguments)))
        weights = self.by_device(f.arguments)
        x: Values = [values.pop() for values in weights]
        made: list[list[SSAValue]] = [[] for _ in self.ts]
        for i in range(self.unit):
            y: Values = [f.onnx("MatMul", [x[t], weights[t][i]], self.product(i, t)) for t in self.ts]
            if self.c.T > 1 and i % 2:
                y = f.allreduce(y)
            x = [f.onnx("Relu", [value], value.type) for value in y]
            for t in self.ts:
                made[t] += [y[t], x[t]]
        return self.add(f.finish(list(chain.from_iterable(made))))

    def forward(self) -> FuncOp:
        """A stage. Per device: weights, x -> the last activation, the stash."""
        unit = self.forward_unit()
        arguments = [[*self.weight_types(t), self.rows(t)] for t in self.ts]
        f = Function("forward", list(chain.from_iterable(arguments)))
        given = self.by_device(f.arguments)
        x: Values = [values.pop() for values in given]
        weights = [f.unpacked(values) for values in given]
        kept: list[list[list[SSAValue]]] = [[] for _ in self.ts]
        """By device and layer."""
        for first in range(0, self.layers, self.unit):
            made = self.call(f, unit, [[*weights[t][first : first + self.unit], x[t]] for t in self.ts], self.ts)
            for t in self.ts:
                inputs = [x[t], *made[t][1::2]]
                for i in range(self.unit):
                    kept[t].append([*([inputs[i]] if first + i else []), made[t][2 * i]])
            x = [values[-1] for values in made]
        results = [[x[t], *(f.pack(list(chain.from_iterable(part))) for part in self.split(kept[t]))] for t in self.ts]
        return self.add(f.finish(list(chain.from_iterable(results))))

    # The backward.

    def emit_backward(
        self,
        f: Function,
        mode: Mode,
        given: Sequence[Sequence[Sequence[SSAValue]]],
        dy: Values,
        outputs: list[Values] | None = None,
    ) -> tuple[Values, list[list[SSAValue]]]:
        """The gradients of one unit: dx, and per device and layer the gradient or, of a later microbatch, the sum so
        far. `given` are, per device and layer, x, y, w and (later) the sum before. dx joins the `outputs` if given."""
        sums: list[list[SSAValue]] = [[] for _ in self.ts]
        for i in reversed(range(self.unit)):
            da = [
                f.add(ReluGradOp.create(operands=[given[t][i][1], dy[t]], result_types=[dy[t].type])) for t in self.ts
            ]
            dx, dw = list[SSAValue](), list[SSAValue]()
            for t in self.ts:
                x, _, w = given[t][i][:3]
                op = MatmulGradOp.create(operands=[x, w, da[t]], result_types=[x.type, w.type])
                f.block.add_op(op)
                dx.append(op.dx)
                dw.append(op.dw)
            dy = f.allreduce(dx) if self.c.T > 1 and i % 2 == 0 else dx
            if outputs is not None and i == 0:
                self.collect(f, mode, outputs, dy)
            for t in self.ts:
                if mode == "first":
                    dw[t] = f.identity(dw[t])
                elif mode == "later":
                    dw[t] = f.onnx("Add", [given[t][i][3], dw[t]], dw[t].type)
                sums[t].insert(0, dw[t])
        return dy, sums

    def collect(self, f: Function, mode: Mode, outputs: list[Values], values: Values) -> None:
        """Adds to a program output that has the batch; `outputs` is what there is of it so far."""
        if mode == "first":
            values = [f.identity(value) for value in values]
        elif mode == "later":
            values = [f.concat([before, value]) for before, value in zip(outputs[0], values, strict=True)]
        outputs[:] = [values]

    def backward_unit(self, mode: Mode) -> FuncOp:
        """Per device: per layer x, y, w and (later) the sum, and then dy -> dx, the sums."""
        arguments: list[Attribute] = []
        for t in self.ts:
            for i in range(self.unit):
                w = self.weight(i, t)
                arguments += [self.product(i - 1, t), self.product(i, t), w, *([w] if mode == "later" else [])]
            arguments.append(self.rows(t))
        f = Function(f"backward_layers_{mode}", arguments)
        given = self.by_device(f.arguments)
        dy = [values.pop() for values in given]
        size = 4 if mode == "later" else 3
        layers = [[values[size * i : size * (i + 1)] for i in range(self.unit)] for values in given]
        dx, sums = self.emit_backward(f, mode, layers, dy)
        return self.add(f.finish([v for t in self.ts for v in (dx[t], *sums[t])]))

    def backward(self, mode: Mode, unit: FuncOp, outermost: bool) -> FuncOp | None:
        """A stage, without its first unit if it is the `outermost`. Per device: weights, (later) sums, x unless it is
        the outermost, stash, dy -> dx, sums."""
        start = self.unit if outermost else 0
        if start == self.layers:
            return None
        parts = slice(1 if outermost else 0, None)
        size = len(self.weight_types(0)[parts])
        later = mode == "later"
        arguments: list[Attribute] = []
        for t in self.ts:
            weights = self.weight_types(t)[parts]
            x = [] if outermost else [self.rows(t)]
            arguments += [*weights, *(weights if later else []), *x, *self.stash_types(t)[parts], self.rows(t)]
        f = Function(f"backward_{mode}{'_outermost' if outermost else ''}", arguments)
        given = self.by_device(f.arguments)
        dy: Values = [values.pop() for values in given]
        layers = [self.layers_given(f, values, size, later, outermost) for values in given]
        sums: list[list[SSAValue]] = [[] for _ in self.ts]
        for first in reversed(range(0, self.layers - start, self.unit)):
            operands = [[*chain.from_iterable(layers[t][first : first + self.unit]), dy[t]] for t in self.ts]
            made = self.call(f, unit, operands, self.ts)
            dy = [values[0] for values in made]
            for t in self.ts:
                sums[t][:0] = made[t][1:]
        results = [
            [dy[t], *(f.pack(part) for part in ([sums[t]] if outermost else self.split(sums[t])))] for t in self.ts
        ]
        return self.add(f.finish(list(chain.from_iterable(results))))

    def layers_given(
        self, f: Function, values: Sequence[SSAValue], size: int, later: bool, outermost: bool
    ) -> list[list[SSAValue]]:
        """Per layer x, y, w and (later) the sum, from a stage's arguments on one device; `size` parts of each."""
        weights = f.unpacked(values[:size])
        sums = f.unpacked(values[size : 2 * size]) if later else []
        rest = values[2 * size if later else size :]
        stash = f.unpacked(rest) if outermost else [rest[0], *f.unpacked(rest[1:])]
        return [[*stash[2 * i : 2 * i + 2], weights[i], *sums[i : i + 1]] for i in range(len(weights))]
