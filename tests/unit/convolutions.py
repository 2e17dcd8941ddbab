"""Convolutions as they are drawn, and as operations: forward, by their input, by their weight, transposed."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Operation
from xdsl.parser import Parser

from distir.dialects.aten import Aten
from distir.dialects.onnx import Onnx

FORWARD, BY_INPUT, BY_WEIGHT, TRANSPOSED = "forward", "by input", "by weight", "transposed"


@dataclass(frozen=True)
class Spatial:
    """The numbers of one spatial dim. `extent` is that of the operand that is convolved, or of what a transposed one takes."""

    extent: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    more: int = 0
    """The output padding of a transposed convolution."""

    @property
    def reach(self) -> int:
        """Rows of the operand under one row of the result."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def rows(self) -> int:
        """Of the result of a convolution."""
        return (self.extent + 2 * self.padding - self.reach) // self.stride + 1

    @property
    def beyond(self) -> int:
        """Rows of the operand after those that any row of the result reads."""
        return (self.extent + 2 * self.padding - self.reach) % self.stride

    @property
    def transposed_rows(self) -> int:
        """Of the result of a transposed convolution of so many rows."""
        return self.stride * (self.extent - 1) - 2 * self.padding + self.reach + self.more


@dataclass(frozen=True)
class Convolution:
    """One convolution or gradient; channels are those of one group."""

    kind: str
    spatial: tuple[Spatial, ...]
    batch: int = 2
    groups: int = 1
    inputs: int = 2
    outputs: int = 3
    bias: bool = False
    shapes: tuple[tuple[int, ...], ...] = field(init=False)
    """Of its operands, and last of its result."""

    def __post_init__(self) -> None:
        inside = self.batch, self.groups * self.inputs, *(d.extent for d in self.spatial)
        outside = self.batch, self.groups * self.outputs, *(d.rows for d in self.spatial)
        weight = self.groups * self.outputs, self.inputs, *(d.kernel for d in self.spatial)
        bias = [(self.groups * self.outputs,)] * self.bias
        match self.kind:
            case "forward":
                shapes = inside, weight, *bias, outside
            case "by input":
                shapes = outside, weight, inside
            case "by weight":
                shapes = outside, inside, weight, weight
            case _:
                weight = self.groups * self.inputs, self.outputs, *weight[2:]
                taken = (*outside[:2], *(d.transposed_rows for d in self.spatial))
                shapes = inside, weight, *bias, taken
        object.__setattr__(self, "shapes", shapes)

    def is_valid(self) -> bool:
        return all(n > 0 for shape in self.shapes for n in shape) and all(
            d.more < max(d.stride, d.dilation) and d.beyond < max(d.stride, d.dilation) for d in self.spatial
        )

    def elements(self) -> int:
        """Of the largest tensor."""
        return max(map(prod, self.shapes))

    def channel_factors(self) -> int:
        """How many ways there are to cut batch and channels: the batch, groups, and inputs and outputs of each group."""
        return sum(extent > 1 for extent in (self.batch, self.groups, self.inputs, self.outputs))

    def onnx_operation(self) -> Operation:
        """A forward or transposed convolution as ONNX has it."""
        numbers = {
            "strides": [d.stride for d in self.spatial],
            "pads": [d.padding for d in self.spatial] * 2,
            "dilations": [d.dilation for d in self.spatial],
        }
        if self.kind == TRANSPOSED:
            numbers["output_padding"] = [d.more for d in self.spatial]
        texts = [f"{name} = [{', '.join(f'{n} : si64' for n in of)}]" for name, of in numbers.items()]
        name = "Conv" if self.kind == FORWARD else "ConvTranspose"
        return self._parsed(f"onnx.{name}", "%y", [*texts, f"group = {self.groups} : si64"], self._types()[-1])

    def operation(self) -> Operation:
        """As ATen has it."""
        numbers: dict[str, list[int]] = {
            "stride": [d.stride for d in self.spatial],
            "padding": [d.padding for d in self.spatial],
            "dilation": [d.dilation for d in self.spatial],
            "output_padding": [{BY_INPUT: d.beyond, TRANSPOSED: d.more}.get(self.kind, 0) for d in self.spatial],
        }
        texts = [f"{name} = array<i64: {', '.join(map(str, of))}>" for name, of in numbers.items()]
        texts += [f"transposed = {str(self.kind in (BY_INPUT, TRANSPOSED)).lower()}", f"groups = {self.groups} : i64"]
        operator, results = "convolution", self._types()[-1]
        if self.kind == BY_WEIGHT:
            operator, results = "convolution_backward", f"(none, {results}, none)"
            texts += ["bias_sizes = array<i64: 0>", "output_mask = [false, true, false]"]
        return self._parsed(f"aten.{operator}", "%a, %y, %b" if self.kind == BY_WEIGHT else "%y", texts, results)

    def _types(self) -> list[str]:
        return [f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in self.shapes]

    def _parsed(self, operator: str, made: str, properties: list[str], results: str) -> Operation:
        types = self._types()[:-1]
        names = [f"%{i}" for i in range(len(types))]
        absent = ["%none"] * (operator.startswith("onnx.") and not self.bias)
        text = f"""func.func @main({", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))}) {{
            %none = "onnx.NoValue"() <{{value}}> : () -> none
            {made} = "{operator}"({", ".join((*names, *absent))}) <{{{", ".join(properties)}}}>
                : ({", ".join((*types, *("none" for _ in absent)))}) -> {results}
            func.return
        }}"""
        context = Context()
        for dialect in (Builtin, func.Func, Aten, Onnx):
            context.load_dialect(dialect)
        (function,) = Parser(context, text).parse_module().ops
        return next(op for op in function.walk() if op.name == operator)

    def operands(self, rng: np.random.Generator) -> list[Any]:
        return [rng.standard_normal(shape) for shape in self.shapes[:-1]]


KINDS = FORWARD, BY_INPUT, BY_WEIGHT, TRANSPOSED
ONNX_KINDS = FORWARD, TRANSPOSED


def drawn(rng: np.random.Generator, kinds: tuple[str, ...] = KINDS) -> Convolution:
    """A convolution of one to three spatial dims, with kernels to 13, strides to 8 and dilations to 6, of few elements."""
    while True:
        kind = str(rng.choice(kinds))
        made = Convolution(
            kind,
            tuple(_drawn_spatial(rng, kind) for _ in range(rng.choice([1, 1, 2, 2, 3]))),
            batch=int(rng.integers(2, 4)),
            groups=int(rng.choice([1, 1, 2, 3, 4])),
            inputs=int(rng.integers(2, 5)),
            outputs=int(rng.integers(2, 6)),
            bias=kind in (FORWARD, TRANSPOSED) and bool(rng.random() < 0.3),
        )
        if made.is_valid() and made.elements() < 60_000:
            return made


def _drawn_spatial(rng: np.random.Generator, kind: str) -> Spatial:
    kernel, rows = int(rng.choice([1, 2, 3, 3, 4, 5, 7, 9, 11, 13])), int(rng.integers(9, 25))
    stride, dilation = int(rng.choice([1, 1, 2, 2, 3, 4, 5, 8])), int(rng.choice([1, 1, 1, 2, 3, 6]))
    reach = dilation * (kernel - 1) + 1
    padding = int(rng.choice([0, reach // 2, rng.integers(0, reach // 2 + 1)]))
    if kind == TRANSPOSED:
        more = int(rng.choice([0, 0, rng.integers(0, max(stride, dilation))]))
        return Spatial(rows, kernel, stride, padding, dilation, more)
    extent = stride * (rows - 1) + reach - 2 * padding + int(rng.integers(0, stride))
    return Spatial(extent, kernel, stride, padding, dilation)


def can_be_cut(spatial: Spatial, kind: str) -> bool:
    """By definition: row `i` of a convolution's result has a term for row `stride * i + dilation * k - padding` of its operand and
    row `k` of its kernel, and gradients have the same terms. Rows can be cut if neither half of those that are computed (or, for the
    weight, of the gradient's) has terms for all rows of the operand."""
    rows = spatial.extent if kind == TRANSPOSED else spatial.rows
    extent = spatial.transposed_rows if kind == TRANSPOSED else spatial.extent
    terms = {
        (i, read)
        for i in range(rows)
        for k in range(spatial.kernel)
        if 0 <= (read := spatial.stride * i + spatial.dilation * k - spatial.padding) < extent
    }
    if kind in (BY_INPUT, TRANSPOSED):
        terms, rows = {(read, i) for i, read in terms}, extent
    halves = range(rows // 2), range(rows // 2, rows)
    read = [{row for computed, row in terms if computed in half} for half in halves]
    return max(map(len, read)) < len({row for _, row in terms})
