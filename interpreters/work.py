"""The work of one operation. In goes an operation; out come its kind of kernel, its flops, and its bytes, from its
types.

The default holds for any operator: it reads its operands, writes its results and does one flop per result element.
Contractions say more (`WorkFunctions`, where an operator joins by `@impl`). A cost model prices the work
(`distir.interpreters.cost_models`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import (
    ComplexType,
    FixedBitwidthType,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    StringAttr,
    TensorType,
    TupleType,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Attribute, Operation, SSAValue, Use

from distir.dialects.dist import (
    AccumulateOp,
    ConcatOp,
    InsertOp,
    MoveOp,
    PackOp,
    PutRowsOp,
    SliceOp,
    TakeRowsOp,
    UnpackOp,
    ZerosOp,
)
from distir.dialects.dist.positions import InsideOp, LocalIndexOp
from distir.dialects.errors import DistirError
from distir.dialects.grad import MatmulGradOp
from distir.dialects.onnx import OPERATORS, NoValue, OnnxOperation
from distir.dialects.plugins import implementations, of_plugin
from distir.dialects.traits import ViewOfFirstOperand
from distir.interpreters.operator_dialects import MEANINGS, function_of
from distir.interpreters.walk import Walk


class Kind(StrEnum):
    """What limits an operation."""

    MATMUL = "matmul"
    """Contractions: flops or bytes."""
    ATTENTION = "attention"
    """Scores, softmax and the sum of values as one kernel: its flops or bytes."""
    ATTENTION_GRADIENT = "attention_gradient"
    """The same of its gradient."""
    ELEMENTWISE = "elementwise"
    """Everything else that computes: bytes."""
    DATA_MOVEMENT = "data_movement"
    """Copies without arithmetic: bytes."""
    VIEW = "view"
    """The result is the operand's memory under another type; takes no time."""
    NOTHING = "nothing"
    """Known before the program runs; takes no time."""


@dataclass(frozen=True)
class Contraction:
    """Matrix products that a contraction is carried out as: `batch` of (m, k) by (k, n), one kernel, `times` one after
    another."""

    batch: int
    m: int
    n: int
    k: int
    times: int = 1

    @property
    def flops(self) -> int:
        return 2 * self.times * self.batch * self.m * self.n * self.k


@dataclass(frozen=True)
class Work:
    """What one execution of an operation asks of a device."""

    kind: Kind
    flops: int = 0
    """A multiplication and an addition are two."""
    bytes: int = 0
    """Read and written, each operand and result once."""
    contractions: tuple[Contraction, ...] = ()
    """What the flops are made of, where they are matrix products of known shapes."""
    is_assumed: bool = False
    """Whether nothing says what the operator does: a flop for each element is assumed."""


VIEWS = frozenset(
    [PackOp, UnpackOp, MoveOp, InsertOp, PutRowsOp]
    + [OPERATORS[name] for name in ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")]
)
"""Their results have the elements of operand 0, in the same order in memory: types alone cannot tell a reshape from
a transpose of a square, so these are listed."""

CONSTANTS = frozenset([OPERATORS["Constant"], OPERATORS["Shape"], OPERATORS["Size"], NoValue])
"""Their results are there before the program runs: values written in it, static shapes, parameters."""


OWN = ("dist", "rank")
"""Dialects of which all operations without flops of their own do a few for each element."""


MOVES = (SliceOp, TakeRowsOp, ConcatOp, ZerosOp, LocalIndexOp, InsideOp)
"""Copies without arithmetic that are no operators."""


IN_PLACE = "dist.in_place"
"""Marks an operation that writes its result where its first operand lies, which nothing needs any more."""


def is_view(op: Operation) -> bool:
    """Whether the results have operand 0's elements in its memory (a pack's: all its operands'): no work."""
    return type(op) in VIEWS or op.has_trait(ViewOfFirstOperand) or is_first_addend(op)


def is_first_addend(op: Operation) -> bool:
    """Whether an operation is a sum of one addend, which it is itself."""
    return isinstance(op, AccumulateOp) and len(op.inputs) == 1


def shares_memory(op: Operation) -> bool:
    """Whether the results take no memory of their own: those of views, and what is written in place."""
    return IN_PLACE in op.attributes or is_view(op)


@cache
def element_bytes(element_type: Attribute) -> int:
    """Bytes of one element; less than a byte takes a byte, as in numpy."""
    if isinstance(element_type, ComplexType):
        return 2 * element_bytes(cast(ComplexType[Any], element_type).element_type)
    if isinstance(element_type, FixedBitwidthType):
        return -(-element_type.bitwidth // 8)
    return 8


def tensor_elements(type_: TensorType[Any]) -> int:
    return prod(type_.get_shape())


def type_bytes(type_: Attribute) -> int:
    """Memory of a value; what is not a tensor or a tuple of tensors (an absent operand) takes none."""
    if isinstance(type_, TensorType):
        tensor = cast("TensorType[Any]", type_)
        return tensor_elements(tensor) * element_bytes(tensor.element_type)
    if isinstance(type_, TupleType):
        return sum(map(type_bytes, type_.types.data))
    return 0


def work_of(op: Operation) -> Work:
    """The work of a compute operation. Raises DistirError if a shape is not static."""
    for value in (*op.operands, *op.results):
        if isinstance(value.type, TensorType) and not cast("TensorType[Any]", value.type).has_static_shape():
            raise DistirError(f"{op.name}: {value.type} has no static shape: run onnx-fold-shapes first")
    (work,) = _domain().run(op, tuple(v.type for v in op.operands))
    return work


def kernel_work(function: FuncOp) -> Work:
    """The work of a function that is one kernel: the flops of its operations, and what it is given and gives once."""
    works = [work_of(op) for op in function.body.block.ops if not isinstance(op, ReturnOp)]
    given = sum(max((_read_by(use) for use in a.uses), default=0) for a in function.body.block.args)
    return Work(
        Kind.MATMUL if any(work.kind is Kind.MATMUL for work in works) else Kind.ELEMENTWISE,
        sum(work.flops for work in works),
        given + sum(map(type_bytes, function.function_type.outputs.data)),
        tuple(c for work in works for c in work.contractions),
    )


def _read_by(use: Use) -> int:
    return read_bytes(use.operation)[use.index]


def default_work(op: Operation, types: PythonValues) -> tuple[Work]:
    """The work of an operator without an `@impl`."""
    if type(op) in CONSTANTS:
        return (Work(Kind.NOTHING),)
    if is_view(op):
        return (Work(Kind.VIEW),)
    meaning = MEANINGS.get(op.dialect_name())
    if meaning is not None and meaning.work is not None and (work := function_of(meaning.work)(op)) is not None:
        if not isinstance(work, Work):
            whose = of_plugin(meaning.work)
            raise DistirError(f"{op.name}: {meaning.work}{whose} gives {work!r}: expected a Work, or None")
        return (work,)
    if _only_moves(op):
        return (Work(Kind.DATA_MOVEMENT, 0, moved_bytes(op)),)
    is_known = op.dialect_name() in OWN if meaning is None else meaning.is_loops and function_of(meaning.is_loops)(op)
    return (Work(Kind.ELEMENTWISE, sum(_result_elements(op)), moved_bytes(op), is_assumed=not is_known),)


def always(op: Operation) -> bool:
    """`Meaning.is_loops` of a dialect whose operators all are."""
    return True


def moved_bytes(op: Operation) -> int:
    """Every operand read and every result written once; of what is looked up in a table, as much as comes out."""
    return sum(read_bytes(op)) + sum(type_bytes(r.type) for r in op.results)


def read_bytes(op: Operation) -> list[int]:
    """Of each operand. One that is larger than the results, beside integers that say what to take of it, is a table."""
    sizes = [type_bytes(v.type) for v in op.operands]
    if not any(map(_is_index, op.operands)):
        return sizes
    most = max((type_bytes(r.type) for r in op.results), default=0)
    return [size if _is_index(v) else min(size, most) for v, size in zip(op.operands, sizes, strict=True)]


def _is_index(value: SSAValue) -> bool:
    if not isinstance(value.type, TensorType):
        return False
    element = cast("TensorType[Any]", value.type).element_type
    return isinstance(element, IntegerType) and element.width.data > 8


def _result_elements(op: Operation) -> list[int]:
    return [tensor_elements(cast("TensorType[Any]", v.type)) for v in op.results if isinstance(v.type, TensorType)]


def _only_moves(op: Operation) -> bool:
    """Whether the operator is defined on strings too: then it copies elements and does no arithmetic on them."""
    return _is_of_strings(type(op)) if isinstance(op, OnnxOperation) and op.schema.outputs else isinstance(op, MOVES)


@cache
def _is_of_strings(kind: type[OnnxOperation]) -> bool:
    result = kind.schema.outputs[0]
    return "tensor(string)" in result.types and result.type_variable in {p.type_variable for p in kind.schema.inputs}


@cache
def _domain() -> Walk:
    return Walk(ModuleOp([]), default=default_work).register([WorkFunctions(), *implementations("work")])


def _shape(type_: Attribute) -> tuple[int, ...]:
    return cast("TensorType[Any]", type_).get_shape()


def dtype_bytes(dtype: str) -> int:
    """Bytes of an element type as the IR prints it (`bf16`, `f8E4M3FN`): its first number is its bits."""
    bits = re.search(r"\d+", dtype)
    return 8 if bits is None else max(1, int(bits[0]) // 8)


def _contract(op: Operation, *contractions: Contraction) -> tuple[Work]:
    return (Work(Kind.MATMUL, sum(c.flops for c in contractions), moved_bytes(op), contractions),)


def _matmul(op: Operation, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Work]:
    """numpy.matmul: a second operand that is one matrix takes the batch of the first as rows."""
    result = _shape(op.results[0].type)
    *rows, k = a
    n = b[-1] if len(b) > 1 else 1
    if len(b) < 3:
        return _contract(op, Contraction(1, prod(rows), n, k))
    batch = result[: len(result) - min(len(a), 2)]
    return _contract(op, Contraction(prod(batch), rows[-1] if rows else 1, n, k))


def _convolution(op: Operation, weight: tuple[int, ...]) -> tuple[Work]:
    """As an implicit matrix product (cuDNN's implicit GEMM): a row per result position, a column per filter, and the
    elements of one filter (channels / groups x kernel: the weight's later dims) contracted."""
    result, groups = _shape(op.results[0].type), _integer(op, "group", 1)
    return _contract(op, Contraction(groups, result[0] * prod(result[2:]), weight[0] // groups, prod(weight[1:])))


def visible_share(rows: int, keys: int, diagonal: int) -> float:
    """The share of scores at positions (row, key) with key <= row + diagonal. Kernels compute blocks of which some are."""
    first, last = min(max(0, -diagonal), rows), min(max(0, keys - diagonal), rows)
    # Row r from `first` on sees r + diagonal + 1 keys, from `last` on all.
    growing = (last - first) * (first + last + 1 + 2 * diagonal) // 2
    return (growing + (rows - last) * keys) / max(rows * keys, 1)


def attention_work(op: Operation, kind: Kind, products: Sequence[Contraction], diagonal: int | None) -> Work:
    """The first product has a row per query and a column per key. Scores are no bytes; where a row sees the keys up to its own position
    plus `diagonal`, others are not computed."""
    share = 1.0 if diagonal is None else visible_share(products[0].m, products[0].n, diagonal)
    return Work(kind, round(share * sum(p.flops for p in products)), moved_bytes(op), tuple(products))


def attention_products(
    heads: int, rows: int, keys: int, depth: int, columns: int, is_backward: bool = False
) -> tuple[Contraction, ...]:
    """Of heads in all samples, with `depth` elements of a query and `columns` of a value: two forward; five backward, which are the scores
    again, and the gradients of weights, values, queries and keys."""
    scores = Contraction(heads, rows, keys, depth)
    if not is_backward:
        return scores, Contraction(heads, rows, columns, keys)
    of_weights, of_value = Contraction(heads, rows, keys, columns), Contraction(heads, keys, columns, rows)
    return scores, of_weights, of_value, Contraction(heads, rows, depth, keys), Contraction(heads, keys, depth, rows)


def _attention(op: Operation, query: tuple[int, ...], key: tuple[int, ...], past: int) -> tuple[Work]:
    """`Q @ K.T` and `P @ V` per head. Operands are (batch, heads, length, head size) or (batch, length, hidden); heads only
    matter for the shape of the products, not for their flops."""
    result = _shape(op.results[0].type)
    keys = key[-2] + past
    heads = query[1] if len(query) == 4 else _integer(op, "q_num_heads", 1)
    batch, length = query[0] * heads, query[-2]
    sizes = [s[-1] if len(query) == 4 else s[-1] // heads for s in (query, result)]
    products = attention_products(batch, length, keys, sizes[0], sizes[1])
    return (attention_work(op, Kind.ATTENTION, products, past if _integer(op, "is_causal", 0) else None),)


def _recurrent(op: Operation, gates: int, x: tuple[int, ...], r: tuple[int, ...]) -> tuple[Work]:
    """Per direction, the products of all steps with W, then one with R per step (cuDNN: Appleyard et al., "Optimizing
    Performance of Recurrent Neural Networks on GPUs", 2016, does them so). R is (directions, gates x hidden, hidden)."""
    first, second, size = x
    steps, batch = (second, first) if _integer(op, "layout", 0) else (first, second)
    directions, hidden = r[0], r[2]
    columns = gates * hidden
    return _contract(
        op,
        Contraction(directions, steps * batch, columns, size),
        Contraction(directions, batch, columns, hidden, steps),
    )


def _integer(op: Operation, name: str, default: int) -> int:
    value = op.properties.get(name)
    return value.value.data if isinstance(value, IntegerAttr) else default


def einsum_work(equation: str, shapes: Sequence[Sequence[int]]) -> tuple[int, tuple[Contraction, ...]]:
    """Flops and matrix products of an einsum, contracted in numpy's order of least flops (`numpy.einsum_path`, after Smith
    & Gray, "opt_einsum", JOSS 2018, whose order torch takes), each label summed as soon as no other operand and not the
    result has it. A pair without a common label to sum is multiplied, one flop per element."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    extents: dict[str, int] = {}
    terms: list[set[str]] = []
    letters: list[str] = []
    for term, shape in zip(inputs.split(","), shapes, strict=True):
        before, dots, after = term.partition("...")
        batch = len(shape) - len(before) - len(after) if dots else 0
        # Broadcast dims are aligned at the right, so they are named from there.
        labels = [*before, *(f"...{batch - i}" for i in range(batch)), *after]
        for label, extent in zip(labels, shape, strict=True):
            extents[label] = max(extents.get(label, 1), extent)
        terms.append(set(labels))
        letters += labels
    once = {label for label in letters if letters.count(label) == 1}
    kept = (set(output) if arrow else once) | {label for label in letters if label.startswith("...")}

    def size(of: set[str]) -> int:
        return prod(extents[label] for label in of)

    flops, products = 0, list[Contraction]()
    for pair in _einsum_order(equation, shapes):
        left, *others = [terms.pop(i) for i in sorted(pair, reverse=True)]
        while others:
            term = others.pop(0)
            needed = kept.union(*terms, *others)
            left, right = left & (term | needed), term & (left | needed)
            common = left & right
            if summed := common - needed:
                products.append(
                    Contraction(size(common & needed), size(left - common), size(right - common), size(summed))
                )
            else:
                flops += size(left | right)
            left = (left | right) & needed
        terms.append(left)
    return flops + sum(p.flops for p in products) or size(set(letters)), tuple(products)


def _einsum_order(equation: str, shapes: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Which operands are contracted at each step; their result is the last operand from then on."""
    if len(shapes) < 3:
        return [range(len(shapes))]
    import numpy as np

    operands = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    return np.einsum_path(equation, *operands, optimize="optimal" if len(shapes) < 6 else "greedy")[0][1:]


@register_impls
class WorkFunctions(InterpreterFunctions):
    """Contractions. Arguments are operand types, the value is the operation's Work. Flops are those of
    torch.utils.flop_counter unless said otherwise; bias additions are not counted, as there."""

    @impl(OPERATORS["MatMul"])
    def matmul(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        return _matmul(op, _shape(args[0]), _shape(args[1]))

    @impl(OPERATORS["MatMulInteger"])
    def matmul_integer(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        return _matmul(op, _shape(args[0]), _shape(args[1]))

    @impl(OPERATORS["QLinearMatMul"])
    def qlinear_matmul(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """Operands are (a, scale, zero point, b, ...)."""
        return _matmul(op, _shape(args[0]), _shape(args[3]))

    @impl(OPERATORS["Gemm"])
    def gemm(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """A is transposed if transA, B if transB."""
        m, k = _shape(args[0])[:: -1 if _integer(op, "transA", 0) else 1]
        _, n = _shape(args[1])[:: -1 if _integer(op, "transB", 0) else 1]
        return _contract(op, Contraction(1, m, n, k))

    @impl(OPERATORS["Conv"])
    def conv(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        return _convolution(op, _shape(args[1]))

    @impl(OPERATORS["ConvInteger"])
    def conv_integer(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        return _convolution(op, _shape(args[1]))

    @impl(OPERATORS["QLinearConv"])
    def qlinear_conv(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """Operands are (x, scale, zero point, w, ...)."""
        return _convolution(op, _shape(args[3]))

    @impl(OPERATORS["DeformConv"])
    def deform_conv(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        return _convolution(op, _shape(args[1]))

    @impl(OPERATORS["ConvTranspose"])
    def conv_transpose(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """Every input element meets every weight of its channel: rows are input positions."""
        x, w, groups = _shape(args[0]), _shape(args[1]), _integer(op, "group", 1)
        return _contract(op, Contraction(groups, x[0] * prod(x[2:]), prod(w[1:]), x[1] // groups))

    @impl(OPERATORS["Einsum"])
    def einsum(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        """`einsum_work`; without a product it is a reduction, transposition or multiplication."""
        equation = cast(StringAttr, op.properties["equation"]).data
        flops, products = einsum_work(equation, [_shape(type_) for type_ in args])
        return (Work(Kind.MATMUL if products else Kind.ELEMENTWISE, flops, moved_bytes(op), products),)

    @impl(OPERATORS["Attention"])
    def attention(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        query, key, *others = args
        past = _shape(others[2])[2] if len(others) > 2 and isinstance(others[2], TensorType) else 0
        return _attention(op, _shape(query), _shape(key), past)

    @impl(OPERATORS["FlexAttention"])
    def flex_attention(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        return _attention(op, _shape(args[0]), _shape(args[1]), 0)

    @impl(OPERATORS["RNN"])
    def rnn(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        return _recurrent(op, 1, _shape(args[0]), _shape(args[2]))

    @impl(OPERATORS["GRU"])
    def gru(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        return _recurrent(op, 3, _shape(args[0]), _shape(args[2]))

    @impl(OPERATORS["LSTM"])
    def lstm(self, interpreter: Interpreter, op: Operation, args: PythonValues) -> PythonValues:
        return _recurrent(op, 4, _shape(args[0]), _shape(args[2]))

    @impl(InsertOp)
    def insert(self, interpreter: Interpreter, op: InsertOp, args: PythonValues) -> PythonValues:
        return (Work(Kind.DATA_MOVEMENT, 0, 2 * type_bytes(op.part.type)),)

    @impl(PutRowsOp)
    def put_rows(self, interpreter: Interpreter, op: PutRowsOp, args: PythonValues) -> PythonValues:
        return (Work(Kind.DATA_MOVEMENT, 0, 2 * type_bytes(op.rows.type)),)

    @impl(MatmulGradOp)
    def matmul_grad(self, interpreter: Interpreter, op: MatmulGradOp, args: PythonValues) -> PythonValues:
        """Two matmuls of the forward's 2mnk flops each: `dy @ w.T` and `x.T @ dy`."""
        x, w, _ = args
        rows, (inner, columns) = prod(_shape(x)[:-1]), _shape(w)
        return _contract(op, Contraction(1, rows, inner, columns), Contraction(1, inner, columns, rows))
