"""Random straight-line models (level 1) with a batch input and parameters, for properties of what distributes them.

They are built from operations of every kind: elementwise, contractions, views that merge and split dims, reductions, splits
and concatenations, some of them over the batch; and they end in outputs, in what is read out of a sum over the batch and, like a
training step, in updates of parameters by such sums. Extents are two (6 and 12), so that dims that differ in meaning are often equal in size."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

BATCH = 12
EXTENTS = (6, 12)

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    name: str
    shape: Shape
    batch: int | None
    """The dim that the batch is; None where there is none, or none that is whole."""

    @property
    def type(self) -> str:
        return f"tensor<{''.join(f'{n}x' for n in self.shape)}f32>"


@dataclass
class RandomModel:
    """A program's text under construction, and the shapes of its arguments."""

    draw: st.DrawFn
    extents: tuple[int, int] = EXTENTS
    inputs: dict[str, Value] = field(default_factory=dict)
    parameters: dict[str, Value] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    count: int = 0

    def pick(self, values: Sequence[Value]) -> Value:
        """Recent values more often: programs that use what they compute."""
        return self.draw(st.sampled_from([*values, *values[-2:], *values[-1:]]))

    def parameter(self, *shape: int) -> Value:
        """A new parameter, or one that there is."""
        alike = [p for p in self.parameters.values() if p.shape == shape]
        if alike and self.draw(st.booleans()):
            return self.draw(st.sampled_from(alike))
        value = Value(f"w{len(self.parameters)}", shape, None)
        self.parameters[value.name] = value
        return value

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def constant(self, *numbers: int) -> str:
        name = self.name()
        self.lines.append(f"%{name} = onnx.Constant dense<{list(numbers)}> : tensor<{len(numbers)}xi64>")
        return name

    def op(
        self,
        kind: str,
        operands: Sequence[Value],
        shape: Shape,
        batch: int | None,
        properties: str = "",
        sizes: str = "",
    ) -> Value:
        result = Value(self.name(), shape, batch)
        names = [f"%{v.name}" for v in operands] + ([f"%{sizes}"] if sizes else [])
        types = [v.type for v in operands]
        if sizes:
            count = next(line for line in self.lines if line.startswith(f"%{sizes} ")).split(" : ")[1]
            types.append(count)
        self.lines.append(
            f'%{result.name} = "onnx.{kind}"({", ".join(names)}){properties} : ({", ".join(types)}) -> {result.type}'
        )
        return result

    # --- one operation of each kind; None where it does not fit ---

    def elementwise(self, x: Value) -> Value:
        return self.op(self.draw(st.sampled_from(["Relu", "Tanh", "Neg", "Sigmoid"])), [x], x.shape, x.batch)

    def binary(self, x: Value) -> Value:
        alike = [v for v in self.values if v.shape == x.shape and v.batch == x.batch]
        kind = self.draw(st.sampled_from(["Add", "Sub", "Mul"]))
        return self.op(kind, [x, self.pick(alike)], x.shape, x.batch)

    def bias(self, x: Value) -> Value:
        if x.batch == len(x.shape) - 1:
            return self.elementwise(x)
        kind = self.draw(st.sampled_from(["Add", "Mul"]))
        return self.op(kind, [x, self.parameter(x.shape[-1])], x.shape, x.batch)

    def dense(self, x: Value) -> Value:
        if x.batch == len(x.shape) - 1:
            return self.transpose(x)
        width = self.draw(st.sampled_from(self.extents))
        return self.op("MatMul", [x, self.parameter(x.shape[-1], width)], (*x.shape[:-1], width), x.batch)

    def gemm(self, x: Value) -> Value:
        if len(x.shape) != 2 or x.batch == 1:
            return self.dense(x)
        width = self.draw(st.sampled_from(self.extents))
        operands = [x, self.parameter(x.shape[-1], width), self.parameter(width)]
        return self.op("Gemm", operands, (x.shape[0], width), x.batch)

    def attend(self, x: Value) -> Value:
        """A contraction of two values with each other, per row of the batch."""
        if len(x.shape) != 3 or x.batch != 0:
            return self.elementwise(x)
        turned = self.op("Transpose", [x], (x.shape[0], x.shape[2], x.shape[1]), 0, " <{perm = [0, 2, 1]}>")
        return self.op("MatMul", [x, turned], (x.shape[0], x.shape[1], x.shape[1]), 0)

    def transpose(self, x: Value) -> Value:
        order = list(self.draw(st.permutations(range(len(x.shape)))))
        batch = None if x.batch is None else order.index(x.batch)
        return self.op("Transpose", [x], tuple(x.shape[d] for d in order), batch, f" <{{perm = {order}}}>")

    def reshape(self, x: Value) -> Value:
        """Merges two neighbouring dims, or splits one into two."""
        d = self.draw(st.integers(0, len(x.shape) - 1))
        if len(x.shape) < 3 and x.shape[d] == self.extents[1] and d != x.batch:
            small = next(n for n in (2, 3) if x.shape[d] % n == 0)
            parts = self.draw(st.permutations([small, x.shape[d] // small]))
            shape = (*x.shape[:d], *parts, *x.shape[d + 1 :])
            batch = None if x.batch is None else x.batch + (x.batch > d)
        elif d and x.batch != d and len(x.shape) == 3:
            shape = (*x.shape[: d - 1], x.shape[d - 1] * x.shape[d], *x.shape[d + 1 :])
            batch = None if x.batch is None or x.batch == d - 1 else x.batch - (x.batch > d)
        else:
            return self.elementwise(x)
        return self.op("Reshape", [x], shape, batch, sizes=self.constant(*shape))

    def softmax(self, x: Value) -> Value:
        axis = self.draw(st.sampled_from([d for d in range(len(x.shape)) if d != x.batch]))
        return self.op("Softmax", [x], x.shape, x.batch, f" <{{axis = {axis} : si64}}>")

    def reduce(self, x: Value) -> Value:
        """Over any dim but the batch, which is kept as a dim of one."""
        axis = self.draw(st.sampled_from([d for d in range(len(x.shape)) if d != x.batch]))
        kind = self.draw(st.sampled_from(["ReduceMean", "ReduceSum", "ReduceMax"]))
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        small = self.op(kind, [x], shape, x.batch, " <{keepdims = 1 : si64}>", self.constant(axis))
        return self.op("Sub", [x, small], x.shape, x.batch)

    def split(self, x: Value) -> Value:
        """Into two, three or five, of which two are joined again in another order or multiplied."""
        axis = len(x.shape) - 1
        if x.batch == axis or x.shape[axis] not in self.extents:
            return self.elementwise(x)
        parts = self.draw(st.sampled_from([n for n in (2, 3, 5) if x.shape[axis] % n == 0]))
        shape = (*x.shape[:-1], x.shape[-1] // parts)
        results = [Value(self.name(), shape, x.batch) for _ in range(parts)]
        sizes = self.constant(*[shape[-1]] * parts)
        self.lines.append(
            f'{", ".join(f"%{r.name}" for r in results)} = "onnx.Split"(%{x.name}, %{sizes}) <{{axis = {axis} : si64}}> : '
            f"({x.type}, tensor<{parts}xi64>) -> ({', '.join(r.type for r in results)})"
        )
        if self.draw(st.booleans()):
            return self.op("Mul", [results[0], results[-1]], shape, x.batch)
        return self.op("Concat", results[::-1], x.shape, x.batch, f" <{{axis = {axis} : si64}}>")

    def weight(self, x: Value) -> Value:
        """Something computed from a parameter alone, which does not depend on the batch."""
        if x.batch == len(x.shape) - 1:
            return self.elementwise(x)
        width = self.draw(st.sampled_from(self.extents))
        turned = self.op(
            "Transpose", [self.parameter(width, x.shape[-1])], (x.shape[-1], width), None, " <{perm = [1, 0]}>"
        )
        return self.op("MatMul", [x, turned], (*x.shape[:-1], width), x.batch)

    def over_batch(self, x: Value) -> Value:
        """What no data parallelism can cut."""
        if x.batch is None:
            return self.elementwise(x)
        return self.op("Softmax", [x], x.shape, None, f" <{{axis = {x.batch} : si64}}>")

    def readout(self) -> Value:
        """Something small computed from a sum over the batch, or from parameters alone."""
        rows = [v for v in self.values if v.batch == 0 and len(v.shape) == 2]
        if self.draw(st.booleans()) and rows:
            pooled = self.draw(st.sampled_from(rows))
            kind = self.draw(st.sampled_from(["ReduceSum", "ReduceMean", "ReduceMax"]))
            shape = (1, pooled.shape[1])
            value = self.op(kind, [pooled], shape, None, " <{keepdims = 1 : si64}>", self.constant(0))
        else:
            value = self.parameter(*self.extents)
        for _ in range(self.draw(st.integers(1, 3))):
            value = self.draw(st.sampled_from([self.dense, self.gemm, self.elementwise, self.bias]))(value)
        return value

    def update(self, parameter: Value) -> str | None:
        """The parameter less a sum over the batch of as many numbers; None where no two values give one."""
        rows = [v for v in self.values if v.batch == 0 and len(v.shape) == 2]
        if len(parameter.shape) == 2:
            pairs = [(a, b) for a in rows for b in rows if (a.shape[1], b.shape[1]) == parameter.shape]
            if not pairs:
                return None
            a, b = self.draw(st.sampled_from(pairs))
            turned = self.op("Transpose", [a], a.shape[::-1], None, " <{perm = [1, 0]}>")
            gradient = self.op("MatMul", [turned, b], parameter.shape, None)
        else:
            fitting = [v for v in rows if v.shape[1:] == parameter.shape]
            if not fitting:
                return None
            kind = self.draw(st.sampled_from(["ReduceSum", "ReduceMean"]))
            chosen = self.draw(st.sampled_from(fitting))
            axes = self.constant(0)
            gradient = self.op(kind, [chosen], parameter.shape, None, " <{keepdims = 0 : si64}>", axes)
        if self.draw(st.booleans()):
            gradient = self.op("Tanh", [gradient], gradient.shape, None)
        return self.op("Sub", [parameter, gradient], parameter.shape, None).name


@dataclass(frozen=True)
class Program:
    text: str
    inputs: dict[str, Shape]

    def draw_inputs(self, seed: int = 0) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        return {name: 0.5 * random.standard_normal(shape) for name, shape in self.inputs.items()}


@st.composite
def models(draw: st.DrawFn, largest: int = 9, batch: int = BATCH, extents: tuple[int, int] = EXTENTS) -> Program:
    """A program of two batch inputs, which returns its last values and some updated parameters."""
    model = RandomModel(draw, extents)
    for name, shape in (("x", (batch, extents[0])), ("y", (batch, *extents))):
        model.inputs[name] = Value(name, shape, 0)
        model.values.append(model.inputs[name])
    common = [model.elementwise, model.binary, model.bias, model.dense, model.dense, model.gemm, model.attend]
    common += [model.transpose, model.reshape, model.softmax, model.reduce, model.split, model.weight]
    for _ in range(draw(st.integers(2, largest))):
        step = model.over_batch if draw(st.integers(0, 29)) == 29 else draw(st.sampled_from(common))
        model.values.append(step(model.pick(model.values)))
    results = [(v, f'dist.name = "out{i}", dist.role = "output"') for i, v in enumerate(model.values[:1:-1][:3])]
    if draw(st.booleans()):
        results.append((model.readout(), 'dist.name = "readout", dist.role = "output"'))
    for parameter in list(model.parameters.values()):
        if draw(st.booleans()) and (updated := model.update(parameter)) is not None:
            name = f'dist.name = "{parameter.name}", dist.role = "parameter"'
            results.append((Value(updated, parameter.shape, None), name))
    return Program(
        _text(model, results), {v.name: v.shape for v in (*model.inputs.values(), *model.parameters.values())}
    )


def _text(model: RandomModel, results: Sequence[tuple[Value, str]]) -> str:
    arguments = [
        f'%{v.name}: {v.type} {{dist.name = "{v.name}", dist.role = "{role}"}}'
        for role, values in (("input", model.inputs), ("parameter", model.parameters))
        for v in values.values()
    ]
    returned = ", ".join(f"{v.type} {{{attributes}}}" for v, attributes in results)
    names, types = ", ".join(f"%{v.name}" for v, _ in results), ", ".join(v.type for v, _ in results)
    body = "\n  ".join([*model.lines, f"func.return {names} : {types}"])
    return f"func.func @main({', '.join(arguments)}) -> ({returned}) {{\n  {body}\n}}\n"
