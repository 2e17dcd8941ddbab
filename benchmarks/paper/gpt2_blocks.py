"""The pieces of the paper's GPT-2 (see `gpt2`) on one device, operator by operator as in `gpt2-10.onnx` (transformers 2.x traced
at opset 10; no language-model head, no cache): the sizes of every view are computed in the program, each by operators that
the original charges a kernel launch for.

A piece ends where a tensor-parallel group sums: after the second matmul of the attention, and after that of the MLP. What
goes from piece to piece is the `State`. Axes that opset 10 has as attributes are operands in ours: constants on no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, IntegerType, Signedness, f16, f32, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from benchmarks.paper.program import Function, shape_of, tensor, tuple_type
from distir.dialects.onnx import OPERATORS
from distir.dialects.onnx.structure import Constant
from distir.dialects.onnx.tensors import TensorAttr

SEQUENCE = 8
VOCABULARY = 50257
POSITIONS = 1024
SIGNED = IntegerType(64, Signedness.SIGNED)

State = Sequence[SSAValue]
"""The residual, the two sizes that the product's view needs, and the product itself."""


@dataclass(frozen=True)
class Gpt2:
    layers: int
    heads: int
    width: int


@cache
def constant(value: float, shape: tuple[int, ...], element_type: Attribute) -> TensorAttr:
    return TensorAttr.from_numpy(np.full(shape, value, np.int64 if element_type == i64 else np.float16))


class Piece(Function):
    """A function on device 0 that computes sizes as it goes."""

    def op(self, name: str, operands: Sequence[SSAValue], shape: Sequence[int], **properties: Attribute) -> SSAValue:
        """The result has the first operand's element type; views copy."""
        of = operands[0].type.element_type  # pyright: ignore[reportAttributeAccessIssue]
        copies = name in ("Reshape", "Squeeze", "Unsqueeze")
        return self.onnx(name, operands, tensor(tuple(shape), 0, of), copies, **properties)

    def same(self, name: str, *operands: SSAValue, **properties: Attribute) -> SSAValue:
        """A result of the first operand's shape."""
        return self.op(name, operands, shape_of(operands[0]), **properties)

    def constant(self, value: float, shape: tuple[int, ...] = (), of: Attribute = f16, device: bool = True) -> SSAValue:
        attribute = constant(value, shape, of)
        return self.add(Constant(attribute, tensor(shape, 0, of) if device else attribute.type))

    def axes(self, axis: int) -> SSAValue:
        """An operand that is an attribute in opset 10."""
        return self.constant(axis, (1,), i64, device=False)

    # Shape arithmetic.

    def size(self, x: SSAValue, axis: int) -> SSAValue:
        """One dim, as a scalar."""
        shape = self.onnx("Shape", [x], tensor((len(shape_of(x)),), 0, i64))
        return self.op("Gather", [shape, self.constant(axis, (), i64)], (), axis=IntegerAttr(0, SIGNED))

    def vector(self, scalar: SSAValue) -> SSAValue:
        return self.op("Unsqueeze", [scalar, self.axes(0)], (1,))

    def view(self, x: SSAValue, sizes: Sequence[SSAValue], shape: Sequence[int]) -> SSAValue:
        target = self.op("Concat", sizes, (len(sizes),), axis=IntegerAttr(0, SIGNED))
        return self.op("Reshape", [x, target], shape)

    # Layers.

    def normalized(self, x: SSAValue, weight: SSAValue, bias: SSAValue) -> SSAValue:
        reduced = (*shape_of(x)[:-1], 1)
        centred = self.same("Sub", x, self.op("ReduceMean", [x, self.axes(-1)], reduced))
        square = self.same("Pow", centred, self.constant(2))
        variance = self.op("ReduceMean", [square, self.axes(-1)], reduced)
        deviation = self.same("Sqrt", self.same("Add", variance, self.constant(1e-5)))
        return self.same("Add", self.same("Mul", self.same("Div", centred, deviation), weight), bias)

    def product(
        self, x: SSAValue, minus_one: SSAValue, weight: SSAValue, bias: SSAValue
    ) -> tuple[SSAValue, SSAValue, SSAValue]:
        """GPT-2's dense layer up to its matmul: the two sizes that its view needs, and the product."""
        batch, sequence = self.size(x, 0), self.size(x, 1)
        inputs, outputs = shape_of(weight)
        rows = shape_of(x)[0] * SEQUENCE
        flat = self.view(x, [minus_one, self.vector(self.size(x, 2))], (rows, inputs))
        one = FloatAttr(1.0, f32)
        return batch, sequence, self.op("Gemm", [flat, weight, bias], (rows, outputs), alpha=one, beta=one)

    def shaped(self, batch: SSAValue, sequence: SSAValue, product: SSAValue, width: SSAValue) -> SSAValue:
        """The product as (batch, sequence, width)."""
        rows, columns = shape_of(product)
        sizes = [self.vector(batch), self.vector(sequence), width]
        return self.view(product, sizes, (rows // SEQUENCE, SEQUENCE, columns))

    def heads(self, x: SSAValue, count: int, count_vector: SSAValue, permutation: Sequence[int]) -> SSAValue:
        rows, _, width = shape_of(x)
        batch, sequence, columns = self.size(x, 0), self.size(x, 1), self.size(x, 2)
        size = self.same("Div", columns, self.constant(count, (), i64))
        size = self.same("Cast", size, to=i64)
        sizes = [self.vector(batch), self.vector(sequence), count_vector, self.vector(size)]
        shape = (rows, SEQUENCE, count, width // count)
        x = self.view(x, sizes, shape)
        order = ArrayAttr([IntegerAttr(axis, i64) for axis in permutation])
        return self.op("Transpose", [x], [shape[axis] for axis in permutation], perm=order)

    def masked(self, scores: SSAValue, mask: SSAValue, two: SSAValue, zero: SSAValue, three: SSAValue) -> SSAValue:
        queries, keys = self.size(scores, 2), self.size(scores, 3)
        start = self.same("Sub", keys, queries)
        starts, ends = self.vector(start), self.vector(keys)
        mask = self.op("Slice", [mask, starts, ends, two, self.constant(1, (1,), i64)], (1, 1, SEQUENCE, POSITIONS))
        ends = self.vector(keys)
        mask = self.op("Slice", [mask, zero, ends, three, self.constant(1, (1,), i64)], (1, 1, SEQUENCE, SEQUENCE))
        kept = self.same("Mul", scores, mask)
        hidden = self.op("Sub", [self.constant(1), mask], shape_of(mask))
        hidden = self.same("Mul", hidden, self.constant(1e4))
        return self.same("Sub", kept, hidden)

    def attention(self, x: SSAValue, values: Sequence[SSAValue], heads: int, head_size: int) -> State:
        """Up to the product of its second matmul. `head_size` is the model's: where the degree of tensor parallelism does
        not divide the heads, the original has fewer and larger ones."""
        weight, bias, mask, out_weight, out_bias, minus_one, width, *counts, two, zero, three, out_minus_one = values
        joint = self.shaped(*self.product(x, minus_one, weight, bias), width)
        rows, _, columns = shape_of(joint)
        part = tensor((rows, SEQUENCE, columns // 3), 0, f16)
        sizes = self.constant(columns // 3, (3,), i64, device=False)
        split = self.split(joint, sizes, part)
        q = self.heads(split[0], heads, counts[0], (0, 2, 1, 3))
        k = self.heads(split[1], heads, counts[1], (0, 2, 3, 1))
        v = self.heads(split[2], heads, counts[2], (0, 2, 1, 3))
        scores = self.op("MatMul", [q, k], (rows, heads, SEQUENCE, SEQUENCE))
        size = shape_of(v)[-1]
        scores = self.same("Div", scores, self.constant(sqrt(head_size)))
        scores = self.masked(scores, mask, two, zero, three)
        weights = self.same("Softmax", scores, axis=IntegerAttr(3, SIGNED))
        attended = self.op("MatMul", [weights, v], (rows, heads, SEQUENCE, size))
        order = ArrayAttr([IntegerAttr(axis, i64) for axis in (0, 2, 1, 3)])
        attended = self.op("Transpose", [attended], (rows, SEQUENCE, heads, size), perm=order)
        batch, sequence, *heads_and_size = (self.size(attended, axis) for axis in range(4))
        merged = self.same("Mul", *heads_and_size)
        sizes = [self.vector(batch), self.vector(sequence), self.vector(merged)]
        attended = self.view(attended, sizes, (rows, SEQUENCE, heads * size))
        return self.product(attended, out_minus_one, out_weight, out_bias)

    def split(self, x: SSAValue, sizes: SSAValue, part: Attribute) -> Sequence[SSAValue]:
        axis = {"axis": IntegerAttr(2, SIGNED)}
        op = OPERATORS["Split"].create(operands=[x, sizes], result_types=[part] * 3, properties=axis)
        self.block.add_op(op)
        return op.results

    def gelu(self, x: SSAValue) -> SSAValue:
        half = self.same("Mul", x, self.constant(0.5))
        cube = self.same("Mul", self.same("Pow", x, self.constant(3)), self.constant(0.044715))
        inner = self.same("Mul", self.same("Add", x, cube), self.constant(0.7978845608))
        return self.same("Mul", half, self.same("Add", self.same("Tanh", inner), self.constant(1)))


class Pieces:
    """The functions of one model and degree of tensor parallelism on one microbatch's rows."""

    def __init__(self, model: Gpt2, tensor_degree: int, rows: int):
        d, cut = model.width, model.width // tensor_degree
        self.model, self.rows, self.heads = model, rows, model.heads // tensor_degree
        integers = tensor((1,), 0, i64)
        vector, mask = tensor((d,), 0, f16), tensor((1, 1, POSITIONS, POSITIONS), 0, f16)
        self.attention_weights = [
            vector,
            vector,
            tensor((d, 3 * cut), 0, f16),
            tensor((3 * cut,), 0, f16),
            mask,
            tensor((cut, d), 0, f16),
            vector,
        ]
        self.attention_integers = [integers] * 9
        self.mlp_weights = [
            vector,
            vector,
            tensor((d, 4 * cut), 0, f16),
            tensor((4 * cut,), 0, f16),
            tensor((4 * cut, d), 0, f16),
            vector,
        ]
        self.mlp_integers = [integers] * 3
        self.view_integers = [integers]
        """The width of the view with which a piece begins."""
        self.embedding_weights = [tensor((VOCABULARY, d), 0, f16), tensor((POSITIONS, d), 0, f16)]
        self.embedding_integers = [integers] * 3
        self.past = tensor((), 0, i64)
        """The length of what came before: a scalar, 0."""
        self.final_weights = [vector, vector]
        self.ids = tensor((rows, 1, SEQUENCE), 0, i64)
        scalar = tensor((), 0, i64)
        self.dims = [scalar] * 4
        """The sizes of the output: those of the ids, and the width."""
        self.residual = tensor((rows, SEQUENCE, d), 0, f16)
        self.state = [self.residual, scalar, scalar, tensor((rows * SEQUENCE, d), 0, f16)]
        self.output = tensor((rows, 1, SEQUENCE, d), 0, f16)

    def embedding(self) -> FuncOp:
        """ids, values -> dims, state after the first attention."""
        types = [*self.embedding_weights, *self.embedding_integers, self.past]
        f = Piece("embedding", [self.ids, tuple_type((*types, *self.attention_weights, *self.attention_integers))])
        ids, packed = f.arguments
        tokens, positions, minus_one, zero, minus_one_too, past, *values = f.unpack(packed)
        dims = [f.size(ids, axis) for axis in range(3)]
        flat = f.view(ids, [minus_one, f.vector(dims[2])], (self.rows, SEQUENCE))
        end = f.same("Add", dims[2], past)
        ones = f.op("ConstantOfShape", [f.vector(end)], (SEQUENCE,), value=constant(1, (1,), i64))
        counted = f.op("NonZero", [ones], (1, SEQUENCE))
        order = ArrayAttr([IntegerAttr(1, i64), IntegerAttr(0, i64)])
        counted = f.op("Transpose", [counted], (SEQUENCE, 1), perm=order)
        counted = f.op("Squeeze", [counted, f.axes(1)], (SEQUENCE,))
        counted = f.same("Cast", f.same("Add", counted, zero), to=i64)
        counted = f.op("Unsqueeze", [counted, f.axes(0)], (1, SEQUENCE))
        place = f.view(counted, [minus_one_too, f.vector(dims[2])], (1, SEQUENCE))
        axis = IntegerAttr(0, SIGNED)
        embedded = f.op("Gather", [tokens, flat], (self.rows, SEQUENCE, self.model.width), axis=axis)
        placed = f.op("Gather", [positions, place], (1, SEQUENCE, self.model.width), axis=axis)
        residual = f.same("Add", embedded, placed)
        dims.append(f.size(residual, 2))
        return f.finish([*dims, *self.attended(f, residual, values)])

    def attended(self, f: Piece, residual: SSAValue, values: Sequence[SSAValue]) -> State:
        weight, bias, *others = values
        normal = f.normalized(residual, weight, bias)
        return [residual, *f.attention(normal, others, self.heads, self.model.width // self.model.heads)]

    def began(self, f: Piece, state: State, width: SSAValue) -> SSAValue:
        """The residual with the product of the piece before added."""
        residual, *product = state
        return f.same("Add", residual, f.shaped(product[0], product[1], product[2], width))

    def attention(self) -> FuncOp:
        """state, values -> state."""
        types = [*self.view_integers, *self.attention_weights, *self.attention_integers]
        f = Piece("attention", [*self.state, tuple_type(tuple(types))])
        *state, packed = f.arguments
        width, *values = f.unpack(packed)
        return f.finish(self.attended(f, self.began(f, state, width), values))

    def mlp(self) -> FuncOp:
        """state, values -> state."""
        types = [*self.view_integers, *self.mlp_weights, *self.mlp_integers]
        f = Piece("mlp", [*self.state, tuple_type(tuple(types))])
        *state, packed = f.arguments
        width, w, b, weight, bias, out_weight, out_bias, minus_one, inner, out_minus_one = f.unpack(packed)
        residual = self.began(f, state, width)
        hidden = f.shaped(*f.product(f.normalized(residual, w, b), minus_one, weight, bias), inner)
        return f.finish([residual, *f.product(f.gelu(hidden), out_minus_one, out_weight, out_bias)])

    def final(self) -> FuncOp:
        """dims, state, values -> output."""
        f = Piece("final", [*self.dims, *self.state, tuple_type((*self.view_integers, *self.final_weights))])
        *given, packed = f.arguments
        width, weight, bias = f.unpack(packed)
        h = f.normalized(self.began(f, given[4:], width), weight, bias)
        sizes = [f.vector(size) for size in given[:4]]
        return f.finish([f.view(h, sizes, (self.rows, 1, SEQUENCE, self.model.width))])
