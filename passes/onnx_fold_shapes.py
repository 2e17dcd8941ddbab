"""`onnx-fold-shapes`: makes every type static and shape arithmetic constant.

Interprets the program in the mixed domain, then rewrites it by what was found: an operation whose results are all known
becomes constants, other results get the types that were inferred, an `If` on a known condition becomes the branch that
is taken, another both branches and a selection, a `Loop` or `Scan` of known length its iterations (`onnx_control_flow`),
and what is left without uses goes.
Constants that broadcasting operators repeat keep one slice (`onnx_narrow`).

Requires: a level 1 program whose inputs are static, or made so by `shape`. Ensures: no open dimension in any type of
the functions, or a DistirError that names the operation that leaves one. Keeps all `dist.*` attributes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, IntegerAttr, IntegerType, ModuleOp, Signedness, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriterListener,
    PatternRewriteWalker,
    RewritePattern,
)
from xdsl.rewriter import Rewriter
from xdsl.traits import ConstantLike
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from distir.dialects.errors import DistirError
from distir.dialects.onnx import OPERATORS, Constant, NoValue, OptionalType, SequenceType, TensorAttr
from distir.frontends.shapes import bind_arguments, parse_shape, require_static_arguments
from distir.passes.onnx_control_flow import (
    BothBranchesAreComputed,
    KnownBranchIsTaken,
    KnownLoopIsUnrolled,
    KnownScanIsUnrolled,
    note_opaque,
)
from distir.passes.onnx_narrow import BROADCASTING, RepeatedConstantsAreNarrow
from distir.passes.onnx_sequences import KnownSequencesAreWrittenOut

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class OnnxFoldShapesPass(ModulePass):
    """Mixed interpretation; `shape="x=8,128"` binds open dimensions first (several, with `;` between them), and brings a program to
    other sizes than it has (`onnx_rebind`)."""

    name = "onnx-fold-shapes"

    shape: str | None = None
    """Shapes of inputs, as in "x=8,128;y=8"; none: those of the program."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        fold_shapes(op, {} if self.shape is None else dict(parse_shape(text) for text in self.shape.split(";")))


def fold_shapes(module: ModuleOp, shapes: Mapping[str, Sequence[int]]) -> None:
    """What the pass does, in place; arguments of these names get these shapes."""
    from distir.passes.onnx_rebind import own_sizes, rebind

    functions = [function for function in module.ops if isinstance(function, FuncOp)]
    main = next((function for function in functions if function.sym_name.data == "main"), None)
    if main is None:
        raise DistirError("onnx-fold-shapes needs a function @main")
    own = own_sizes(main, shapes)
    bind_arguments(main, own)
    _fold(module, main, functions)
    if own != shapes:
        rebind(main, shapes)
        _fold(module, main, functions)


def _fold(module: ModuleOp, main: FuncOp, functions: Sequence[FuncOp]) -> None:
    from distir.interpreters.mixed import infer, require_static

    require_static_arguments(main)
    values = infer(module)
    while any(_write_out_control_flow(module, functions, patterns) for patterns in _control_flow(values)):
        values = infer(module)
    note_opaque(module, values)
    for function in functions:
        require_static(values, function)
    folding = Folding(values)
    for function in functions:
        folding.fold(function)
        if _simplify(function):
            _erase_dead(function.body)
    for function in functions:
        _make_signature_static(function, values)


def _control_flow(values: Mapping[SSAValue, object]) -> Sequence[Sequence[RewritePattern]]:
    """What writes out control flow and sequences; both branches of an `If` only when nothing else does, as its condition may come to be known."""
    known = [KnownBranchIsTaken(values), KnownLoopIsUnrolled(values), KnownScanIsUnrolled(values)]
    return known, [KnownSequencesAreWrittenOut(values)], [BothBranchesAreComputed(values)]


def _write_out_control_flow(module: ModuleOp, functions: Sequence[FuncOp], patterns: Sequence[RewritePattern]) -> bool:
    ops = (op for function in functions for block in function.body.blocks for op in block.ops)
    if not any(
        op.regions or any(isinstance(result.type, SequenceType | OptionalType) for result in op.results) for op in ops
    ):
        return False
    return PatternRewriteWalker(GreedyRewritePatternApplier(list(patterns))).rewrite_module(module)


class Folding:
    """Rewrites functions by what is known of their values: operations whose used results are all known become constants,
    operations that nothing uses go, and the results of the others get the types that were inferred.

    Floating results must be exact: what the operation rounds stays an operation, so that a program computed in a wider type
    (`distir verify`) does not keep the rounding of a narrower one."""

    def __init__(self, values: Mapping[SSAValue, object]) -> None:
        self.values = values
        self.known: set[Operation] = set()
        """The operations that become constants."""
        self._attributes: dict[int, TensorAttr] = {}

    def fold(self, function: FuncOp) -> None:
        """An operation that is erased can leave another one with no used results but known ones: again, until none is."""
        while True:
            self.known.clear()
            for op in function.body.walk():
                if self._is_known(op):
                    self.known.add(op)
            self._rewrite(function.body)
            if not self.known:
                return

    def _is_known(self, op: Operation) -> bool:
        from numpy import ndarray

        if isinstance(op, Constant) or not op.results:
            return False
        results = [self.values.get(result) for result in op.results]
        arrays = [isinstance(value, ndarray) for value in results]
        all_known = all(known or r.first_use is None for known, r in zip(arrays, op.results, strict=True))
        return all_known and any(arrays) and self._is_exact(op, results)

    def _is_exact(self, op: Operation, results: Sequence[object]) -> bool:
        """Whether an operation gives the same numbers when it computes in float64."""
        import numpy as np

        from distir.interpreters.reference import run_operator

        floats = (np.float16, np.float32)
        rounded = [isinstance(value, np.ndarray) and value.dtype in floats for value in results]
        if not any(rounded) or op.regions or op.has_trait(ConstantLike):
            return True
        operands: list[object] = []
        for value in op.operands:
            owner = value.owner
            if owner not in self.known and not isinstance(owner, Constant | NoValue):
                return False
            array = owner.value.to_numpy() if isinstance(owner, Constant) else self.values.get(value)
            is_rounded = isinstance(array, np.ndarray) and array.dtype in floats
            operands.append(cast("np.ndarray[Any, Any]", array).astype(np.float64) if is_rounded else array)
        with np.errstate(all="ignore"):
            wide = run_operator(op, operands, np.dtype(np.float64))
        return all(
            np.array_equal(np.asarray(exact, np.float64), np.asarray(value, np.float64), equal_nan=True)
            for exact, value, is_rounded in zip(wide, results, rounded, strict=True)
            if is_rounded
        )

    def _rewrite(self, region: Region) -> None:
        """From the last operation to the first, so that the users of a result are done before it."""
        for block in reversed(region.blocks):
            for op in reversed(list(block.ops)):
                if op in self.known:
                    self._become_constants(op, block)
                elif is_trivially_dead(op):
                    block.erase_op(op)
                else:
                    for inner in op.regions:
                        self._rewrite(inner)
                    self._become_static(op)

    def _become_constants(self, op: Operation, block: Block) -> None:
        for result in op.results:
            if result.first_use is None:
                continue
            value = cast("np.ndarray[Any, Any]", self.values[result])
            if (attribute := self._attributes.get(id(value))) is None:
                attribute = self._attributes[id(value)] = TensorAttr.from_numpy(value)
            constant = Constant(attribute, _placed(attribute.type, result.type))
            block.insert_op_before(constant, op)
            result.replace_all_uses_with(constant.output)
        block.erase_op(op)

    def _become_static(self, op: Operation) -> None:
        for result in op.results:
            inferred = self.values.get(result)
            if not isinstance(inferred, Attribute) or inferred is result.type:
                continue
            if (type := _placed(inferred, result.type)) != result.type:
                Rewriter.replace_value_with_new_type(result, type)


def _simplify(function: FuncOp) -> bool:
    """Rewrites the operations that look at what their operands are made of, each one after those; whether any was."""
    patterns: Mapping[type[Operation], RewritePattern] = {
        OPERATORS["Dropout"]: DropoutKeepsAll(),
        OPERATORS["Reshape"]: RowOperatorNeedsNoFlatten(),
        **dict.fromkeys(BROADCASTING, RepeatedConstantsAreNarrow()),
    }
    pending: list[Operation] = []
    listener = PatternRewriterListener(operation_insertion_handler=[pending.append])
    changed = False
    for each in [op for op in function.body.walk() if type(op) in patterns]:
        pending.append(each)
        while pending:
            op = pending.pop()
            while op.parent is not None and (pattern := patterns.get(type(op))) is not None:
                rewriter = PatternRewriter(op)
                rewriter.extend_from_listener(listener)
                pattern.match_and_rewrite(op, rewriter)
                if not rewriter.has_done_action:
                    break
                changed = True
    return changed


def _erase_dead(region: Region) -> None:
    for block in reversed(region.blocks):
        for op in reversed(list(block.ops)):
            if is_trivially_dead(op):
                block.erase_op(op)
            else:
                for inner in op.regions:
                    _erase_dead(inner)


class RowOperatorNeedsNoFlatten(RewritePattern):
    """`Reshape(Softmax(Flatten(x)))` over the last dim of x, reshaped back to x, is `Softmax(x)` over that dim.

    This is how ONNX's version converter writes a softmax of opset 12 or older, which flattened its operand; without it
    the dims that the flattening merged stay apart and can be cut."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, OPERATORS["Reshape"]):
            return
        row_op = op.operands[0].owner
        if not isinstance(row_op, tuple(OPERATORS[name] for name in ("Softmax", "LogSoftmax", "Hardmax"))):
            return
        flatten = row_op.operands[0].owner
        if not isinstance(flatten, OPERATORS["Flatten"]):
            return
        x, flat = flatten.operands[0], flatten.results[0]
        rank = len(_shape(x))
        is_last = _integer(row_op, "axis", -1) in (-1, 1) and _shape(flat)[1:] == _shape(x)[-1:]
        if not is_last or op.results[0].type != x.type or _integer(flatten, "axis", 1) != rank - 1:
            return
        whole = type(row_op).create(
            operands=[x],
            result_types=[op.results[0].type],
            properties={"axis": IntegerAttr(-1, IntegerType(64, Signedness.SIGNED))},
            attributes=dict(row_op.attributes),
        )
        rewriter.replace(op, whole)


class DropoutKeepsAll(RewritePattern):
    """A `Dropout` that is not in training gives its operand, and draws nothing."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        training = op.operands[2].owner if len(op.operands) > 2 else None
        is_off = isinstance(training, Constant) and not training.value.to_numpy().any()
        is_alone = all(result.first_use is None for result in op.results[1:])
        if is_alone and (training is None or isinstance(training, NoValue) or is_off):
            rewriter.replace(op, [], [op.operands[0], *[None] * len(op.results[1:])])


def _shape(value: SSAValue) -> tuple[int, ...]:
    return cast(TensorType[Attribute], value.type).get_shape() if isinstance(value.type, TensorType) else ()


def _integer(op: Operation, name: str, default: int) -> int:
    attribute = op.properties.get(name)
    return cast(IntegerAttr[IntegerType], attribute).value.data if isinstance(attribute, IntegerAttr) else default


def _placed(type: Attribute, like: Attribute) -> Attribute:
    """The type, where a value of type `like` lives."""
    if isinstance(type, TensorType) and isinstance(like, TensorType):
        tensor = cast(TensorType[Attribute], type)
        return TensorType(tensor.element_type, tensor.get_shape(), cast(TensorType[Attribute], like).encoding)
    return type


def _make_signature_static(function: FuncOp, values: Mapping[SSAValue, object]) -> None:
    """Arguments and the function's type follow what was inferred."""
    inside = [region.block for op in function.body.walk() for region in op.regions if region.blocks]
    for argument in (*function.args, *(argument for block in inside for argument in block.args)):
        inferred = values.get(argument)
        if isinstance(inferred, Attribute):
            Rewriter.replace_value_with_new_type(argument, _placed(inferred, argument.type))
    results = function.get_return_op()
    assert results is not None
    function.function_type = FunctionType.from_lists(
        [argument.type for argument in function.args], [value.type for value in results.operands]
    )
