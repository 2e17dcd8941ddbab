"""The structure of a module. In goes a module, function or operation; out come functions by name, calls in
topological order, constants, types and attributes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue, Use
from xdsl.traits import Pure

from distir.dialects.dist import MicrobatchesOp, ZerosOp
from distir.dialects.dist.calls import CallOp as DistCallOp
from distir.dialects.errors import DistirError

ENTRY = "main"

AnyCall = CallOp | MicrobatchesOp
"""What runs a function in a program that is not placed: a call once, a loop over microbatches once for each."""


def functions(module: ModuleOp) -> dict[str, FuncOp]:
    """All functions by symbol name, in module order."""
    return {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, FuncOp)}


def unique_symbol(module: ModuleOp, stem: str) -> str:
    """`stem`, or `stem_1`, `stem_2`, ...: a symbol that no function has."""
    taken = functions(module)
    candidates = (stem if i == 0 else f"{stem}_{i}" for i in range(len(taken) + 1))
    return next(name for name in candidates if name not in taken)


def is_constant(op: Operation) -> bool:
    """Whether an operation only states a value: pure, no operands, no regions. Zeros to which others are added are memory that is
    written, in the parts in which it is needed."""
    if op.operands or op.regions or not op.results or isinstance(op, ZerosOp):
        return False
    return op.has_trait(Pure)


def is_stated(value: SSAValue) -> TypeGuard[OpResult]:
    """Whether a value is a constant, of which each user may have its part for nothing."""
    return isinstance(value, OpResult) and is_constant(value.op)


def is_constant_expression(op: Operation) -> bool:
    """Whether an operation states a value or only expands stated ones (zeros of a shape): it is repeated where it is
    used rather than passed around, so that each user may have it in its own parts."""
    if is_constant(op):
        return True
    if not op.operands or op.regions or not op.has_trait(Pure):
        return False
    return all(map(is_stated, op.operands))


def user_of(value: SSAValue, use: Use) -> Operation:
    """The operation that uses a value, in the value's block: the one in whose regions the use is."""
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent_block()
    found = None if block is None else block.find_ancestor_op_in_block(use.operation)
    return use.operation if found is None else found


def copied(region: Region, values: Mapping[SSAValue, SSAValue]) -> Region:
    """A copy of a region in which `values` stand for what it uses from outside."""
    copy = Region()
    region.clone_into(copy, None, dict(values))
    return copy


def cloned(function: FuncOp) -> FuncOp:
    """A copy of a function of one block, whose arguments are made at once: `clone` makes them one by one, which takes the square of
    their number."""
    block = function.body.block
    body = Block(arg_types=[argument.type for argument in block.args])
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, body.args, strict=True))
    for argument, own in zip(block.args, body.args, strict=True):
        share_name_hint([own], argument.name_hint)
    body.add_ops([op.clone(values) for op in block.ops])
    return FuncOp.create(
        properties=dict(function.properties),
        attributes=dict(function.attributes),
        regions=[Region(body)],
        location=function.location,
    )


def give_body(function: FuncOp, block: Block) -> None:
    """Puts a block, which ends in a return, in place of a function's body; the function's type becomes what the block takes and
    returns. The old body is detached."""
    assert isinstance(block.last_op, ReturnOp)
    function.body.detach_block(function.body.block)
    function.body.add_block(block)
    function.function_type = FunctionType.from_lists(block.arg_types, [v.type for v in block.last_op.operands])


def share_name_hint(values: Iterable[SSAValue], hint: str | None) -> None:
    """Names values for readers of the text. `hint` is the hint of another value, or otherwise known to be one: it is not checked
    again (checking takes longer than making the value)."""
    for value in values:
        value._name = hint  # pyright: ignore[reportPrivateUsage]


def stands_for(op: Operation, copy: Operation, values: dict[SSAValue, SSAValue]) -> None:
    """Notes that a copy's results stand for those of an operation, and names them alike."""
    for old, new in zip(op.results, copy.results, strict=True):
        share_name_hint([new], old.name_hint)
        values[old] = new


def callee_of(op: Operation) -> str | None:
    """The symbol that a call names; None for other operations."""
    if isinstance(op, AnyCall):
        return op.callee.string_value()
    return op.callee_name if isinstance(op, DistCallOp) else None


def calls_first(module: ModuleOp, entry: str = ENTRY) -> list[FuncOp]:
    """Functions reached from the entry, callees before callers."""
    table, done = functions(module), dict[str, FuncOp]()

    def visit(name: str) -> None:
        if name in done:
            return
        function = table[name]
        if not function.body.blocks:
            raise DistirError(f"@{name} has no body: a program that is distributed defines every function it calls")
        for op in function.body.block.ops:
            if (callee := callee_of(op)) is not None:
                visit(callee)
        done[name] = function

    visit(entry)
    return list(done.values())


def executions(called_first: Sequence[FuncOp], entry: FuncOp) -> Mapping[str, int]:
    """How often each function runs in one run of the entry; callees come before their callers."""
    counts: dict[str, int] = defaultdict(int)
    counts[entry.sym_name.data] = 1
    for function in reversed(called_first):
        for op in function.body.block.ops:
            if isinstance(op, AnyCall):
                counts[op.callee.string_value()] += runs_of(op) * counts[function.sym_name.data]
    return counts


def runs_of(call: AnyCall) -> int:
    """How often a call runs its function."""
    return call.times if isinstance(call, MicrobatchesOp) else 1


def parameters(call: AnyCall, callee: FuncOp) -> Sequence[BlockArgument]:
    """The arguments of a function that take a call's operands: all but the number of the microbatch."""
    return callee.body.block.args[: len(call.operands)]


def tensor_type(value: SSAValue) -> TensorType[Any]:
    return cast("TensorType[Any]", value.type)


def shape_of(value: SSAValue) -> tuple[int, ...]:
    """The static shape of a value; () for values that are no tensors."""
    return tensor_type(value).get_shape() if isinstance(value.type, TensorType) else ()


def _attribute_dicts(attributes: ArrayAttr[DictionaryAttr] | None, count: int) -> list[Mapping[str, Attribute]]:
    return [{}] * count if attributes is None else [each.data for each in attributes.data]


def argument_attributes(function: FuncOp) -> list[Mapping[str, Attribute]]:
    """The attributes of each argument, by name."""
    return _attribute_dicts(function.arg_attrs, len(function.function_type.inputs))


def result_attributes(function: FuncOp) -> list[Mapping[str, Attribute]]:
    """The attributes of each result, by name."""
    return _attribute_dicts(function.res_attrs, len(function.function_type.outputs))


def text(attributes: Mapping[str, Attribute], key: str, default: str) -> str:
    """A string attribute's text."""
    value = attributes.get(key)
    return value.data if isinstance(value, StringAttr) else default


def is_annotated(module: ModuleOp) -> bool:
    """Whether any op carries a rule."""
    return any("dist.rule" in op.attributes for f in calls_first(module) for op in f.body.block.ops)
