"""Communication beside computation. In goes the entry of a placed program; out comes the entry with its messages on streams of their own.

Sends to later stages leave on the stream `send-next`, those to earlier stages on `send-previous`, collectives run on `collective`: a stream for
each kind, as each communicator of NCCL has. A send arrives on the first of `receive`, `receive-1`, ... from which nothing is still waited for: waiting for it
waits for no later message, and nothing is sent later because another message is on its way to the same device. Reductions of the same devices are one message, up to so many bytes (`buckets`). A message starts as soon as its operands are there
(a `dist.move` right after what makes them), and its results are waited for where they are first used (a `dist.move` right
before). Values that feed a reduction are made as early as they can be: the last call on their way (the last microbatch's
backward part) is opened, so that each layer's gradients are reduced while earlier layers still compute.

Requires level 3. Ensures equal values on equal devices: only the streams, and the order of what does not depend on each other,
are others. Memory may grow: results of reductions are held from when they are issued."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import count

from xdsl.dialects.builtin import DenseArrayBase, FunctionType, IntegerAttr, ModuleOp, i64
from xdsl.dialects.func import CallOp as FuncCallOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from distir.dialects.dist import AccumulateOp, CallOp, MoveOp, PackOp, SendOp, UnpackOp
from distir.dialects.dist.attributes import MAIN_STREAM, on_device, placed, placement, placements, relocated
from distir.dialects.dist.calls import is_kernel, is_placed
from distir.dialects.dist.communication import CollectiveOp, CommunicationOp
from distir.interpreters.walk import uses_of, values_read
from distir.interpreters.work import type_bytes
from distir.passes.distribution.inline import erase_unreached
from distir.passes.distribution.pipeline.buckets import fill_buckets
from distir.passes.distribution.pipeline.chunks import Chunks, is_computed_beside
from distir.passes.structure import functions

NEXT, PREVIOUS, RECEIVE, COLLECTIVE = "send-next", "send-previous", "receive", "collective"

HOISTED = (CollectiveOp, AccumulateOp, UnpackOp)

Position = tuple[int, ...]
"""Where an operation is in the program: operations that replace a call are inside its position."""


def overlap_communication(module: ModuleOp, entry: FuncOp, bucket_bytes: int, chunks: Chunks) -> None:
    """Puts the messages of the entry on streams of their own, with reductions joined to buckets of at most so many bytes, and collectives that
    would be waited for in chunks."""
    _reduce_in_entry(module, entry)
    positions = _open_last_calls(module, entry)
    _forward_tuples(entry)
    join_reductions(entry, bucket_bytes, positions)
    chunks.cut(entry.body.block, is_computed_beside)
    for op in [op for op in entry.body.block.ops if isinstance(op, CommunicationOp) and _moves(op)]:
        _on_stream(op)
    _wait(entry)
    _receive(entry)
    erase_unreached(module, entry.sym_name.data)


def _moves(op: CommunicationOp) -> bool:
    """Whether all its values are on main streams; there is nothing to do for others."""
    values = [*op.operands, *op.results]
    places = [placement(v.type) for v in values]
    return all(p and p.stream == MAIN_STREAM for p in places)


# --- making values early -----------------------------------------------------------------------------------------------


def _reduce_in_entry(module: ModuleOp, entry: FuncOp) -> None:
    """Reductions of what a function is given for that alone are made by the entry, if it alone calls the function, and once: where their operands come from is
    in sight there."""
    table, sites = functions(module), defaultdict[str, list[CallOp]](list)
    for op in module.walk():
        if isinstance(op, CallOp):
            sites[op.callee_name].append(op)
    for name, calls in sites.items():
        if len(calls) == 1 and calls[0].parent is entry.body.block and not is_kernel(table[name]):
            for op in list(table[name].body.block.ops):
                if not isinstance(op, CollectiveOp) or not _is_reduction(op) or not _moves(op):
                    continue
                if all(isinstance(v, BlockArgument) and v.has_one_use() for v in op.operands):
                    _leave(op, table[name], calls[0])


def _leave(op: Operation, function: FuncOp, call: CallOp) -> None:
    """Has the caller do what a function does first with these arguments, and give it the results."""
    block, devices = function.body.block, call.devices
    given = {argument: call.operands[argument.index] for argument in block.args}
    copy = op.clone({value: given[value] for value in op.operands if isinstance(value, BlockArgument)})
    for result in list(copy.results):
        Rewriter.replace_value_with_new_type(result, relocated(result.type, devices))
    entry = call.parent
    assert entry is not None
    entry.insert_op_before(copy, call)
    for argument, inner, outer in zip(op.operands, op.results, copy.results, strict=True):
        assert isinstance(argument, BlockArgument)
        call.operands[argument.index] = outer
        Rewriter.replace_value_with_new_type(argument, inner.type)
    arguments = [block.args[v.index] for v in op.operands if isinstance(v, BlockArgument)]
    for argument, inner in zip(arguments, op.results, strict=True):
        inner.replace_all_uses_with(argument)
    block.erase_op(op)
    function.function_type = FunctionType.from_lists([a.type for a in block.args], [*function.function_type.outputs])


def _open_last_calls(module: ModuleOp, entry: FuncOp) -> dict[Operation, Position]:
    """Inlines, for every operand of a collective, the last call that it comes from; if that only accumulates, then the last
    before it. Returns where each operation is; those of calls of one function are where the first of these was."""
    table = functions(module)
    opened: dict[str, Position] = {}
    positions: dict[Operation, Position] = {op: (i,) for i, op in enumerate(entry.body.block.ops)}
    for op in [op for op in entry.body.block.ops if isinstance(op, CollectiveOp)]:
        for index in range(len(op.operands)):
            while True:
                makers = _makers(op.operands[index])
                last = max(makers, key=lambda maker: positions[maker], default=None)
                if not isinstance(last, CallOp) or len(positions[last]) > 1 or not _opens(table[last.callee_name]):
                    break
                first = opened.setdefault(last.callee_name, positions[last])
                for number, inner in enumerate(_inline(last, table[last.callee_name])):
                    positions[inner] = (*first, number)
    return positions


def _makers(value: SSAValue) -> set[Operation]:
    """The operations that a value comes from, through tuples and accumulation."""
    found: set[Operation] = set()
    seen: set[SSAValue] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if value in seen or not isinstance(value, OpResult):
            continue
        seen.add(value)
        source = _element(value)
        if source is not None:
            waiting.append(source)
        elif isinstance(value.op, AccumulateOp | UnpackOp):
            waiting += value.op.operands
        else:
            found.add(value.op)
    return found


def _element(value: OpResult) -> SSAValue | None:
    """What was packed, of an unpacked value whose tuple was packed in sight."""
    if not isinstance(value.op, UnpackOp):
        return None
    pack = value.op.operands[0].owner
    return pack.operands[value.index] if isinstance(pack, PackOp) else None


def _opens(function: FuncOp) -> bool:
    """Whether the function says where everything in it runs."""
    return is_placed(function) and not any(isinstance(op, FuncCallOp) for op in function.body.block.ops)


def _inline(call: CallOp, callee: FuncOp) -> list[Operation]:
    """Replaces a call by the callee's operations, on the call's devices, and returns them."""
    devices, block = call.devices, call.parent
    assert block is not None
    values: dict[SSAValue, SSAValue] = dict(zip(callee.body.block.args, call.operands, strict=True))
    copies: list[Operation] = []
    for op in callee.body.block.ops:
        if isinstance(op, ReturnOp):
            for result, value in zip(call.results, op.operands, strict=True):
                result.replace_all_uses_with(values[value])
            continue
        copy = op.clone(values)
        for result in list(copy.results):
            Rewriter.replace_value_with_new_type(result, relocated(result.type, devices))
        values.update(zip(op.results, copy.results, strict=True))
        if isinstance(copy, CallOp):
            on = [devices[device] for device in copy.devices]
            copy.properties["on"] = CallOp(copy.callee_name, [], on, []).on
        elif isinstance(to := copy.properties.get("to"), IntegerAttr):
            copy.properties["to"] = IntegerAttr(devices[to.value.data], i64)
        elif isinstance(to, DenseArrayBase):
            copy.properties["to"] = DenseArrayBase.from_list(i64, [devices[int(d)] for d in to.get_values()])
        block.insert_op_before(copy, call)
        copies.append(copy)
    block.erase_op(call)
    return copies


def _forward_tuples(entry: FuncOp) -> None:
    """Values that are packed and unpacked in the entry are themselves; tuples that nobody reads are not made."""
    block = entry.body.block
    for op in list(block.ops):
        if isinstance(op, UnpackOp) and isinstance(op.operands[0].owner, PackOp):
            for result, source in zip(op.results, op.operands[0].owner.operands, strict=True):
                result.replace_all_uses_with(source)
            block.erase_op(op)
    for op in list(block.ops):
        if isinstance(op, PackOp | UnpackOp) and all(result.first_use is None for result in op.results):
            block.erase_op(op)


def join_reductions(function: FuncOp, bucket_bytes: int, positions: Mapping[Operation, Position] | None = None) -> None:
    """Has the collectives of a function begin as early as they can, joined to buckets."""
    _reorder(function, positions or {})
    fill_buckets(function.body.block, bucket_bytes)


def _reorder(entry: FuncOp, positions: Mapping[Operation, Position]) -> None:
    """Collectives, and the accumulation and unpacking before them, go right after what they need, and gathers of arguments stay. All else stays in order on
    each device; across devices, the opened calls of one function advance side by side, since a collective waits for the
    slowest (and a stream, once it waits for a value, for all that its device did before)."""
    block = entry.body.block
    ops = list(block.ops)
    numbers = {op: number for number, op in enumerate(ops)}
    keys = [positions.get(op, (number,)) for number, op in enumerate(ops)]
    needs: list[list[int]] = []
    last_on: dict[int, int] = {}
    for number, op in enumerate(ops):
        needed = [numbers[v.op] for v in values_read(op) if isinstance(v, OpResult)]
        if not isinstance(op, HOISTED):
            for device in {on.device for on in placements(v.type for v in (*op.operands, *op.results))}:
                if device in last_on:
                    needed.append(last_on[device])
                last_on[device] = number
        needs.append(needed)
    for number in range(len(ops) - 1, -1, -1):
        for before in needs[number]:
            keys[before] = min(keys[before], keys[number])
    for number, op in enumerate(ops):
        needed = [keys[before] for before in needs[number]]
        if isinstance(op, HOISTED):
            keys[number] = max(needed, default=(-1,) if _is_reduction(op) else keys[number])
        else:
            keys[number] = max([keys[number], *needed])
    for op in ops:
        op.detach()
    block.add_ops([ops[number] for number in sorted(range(len(ops)), key=lambda number: (keys[number], number))])


def _is_reduction(op: Operation) -> bool:
    """Whether it is a collective that leaves no more than it is given: early, it takes no memory."""
    sizes = [sum(type_bytes(v.type) for v in values) for values in (op.operands, op.results)]
    return isinstance(op, CollectiveOp) and sizes[0] >= sizes[1]


# --- streams ----------------------------------------------------------------------------------------------------------


def _on_stream(op: CommunicationOp) -> None:
    """Replaces a message by the same on its stream: operands move there where they are made, results come back."""
    block = op.parent
    assert block is not None
    stream = there = COLLECTIVE
    if isinstance(op, SendOp):
        stream, there = NEXT if _device(op.output) > _device(op.input) else PREVIOUS, RECEIVE
    moved: list[SSAValue] = []
    for value in op.operands:
        if isinstance(back := value.owner, MoveOp) and stream_of(back.input) == stream:
            moved.append(back.input)  # another on this stream made it
            continue
        move = MoveOp(value, stream)
        move.output.name_hint = value.name_hint
        if isinstance(value, OpResult):
            block.insert_op_after(move, value.op)
        else:
            block.insert_op_before(move, op)
        moved.append(move.output)
    types = [placed(r.type, on_device(_device(r), there, _count(r))) for r in op.results]
    message = type(op).create(
        operands=moved, result_types=types, properties=dict(op.properties), attributes=dict(op.attributes)
    )
    block.insert_op_before(message, op)
    for old, new in zip(op.results, message.results, strict=True):
        back = MoveOp(new, MAIN_STREAM)
        back.output.name_hint = new.name_hint = old.name_hint
        block.insert_op_after(back, message)
        old.replace_all_uses_with(back.output)
    block.erase_op(op)


def stream_of(value: SSAValue) -> str | None:
    """The stream of a value; None: it is not on one device."""
    on = placement(value.type)
    return None if on is None else on.stream


def _device(value: SSAValue) -> int:
    on = placement(value.type)
    assert on is not None
    return on.device


def _count(value: SSAValue) -> int:
    on = placement(value.type)
    return 1 if on is None else on.count


def _wait(entry: FuncOp) -> None:
    """What comes back from a stream comes back where it is first used."""
    block = entry.body.block
    positions = {op: number for number, op in enumerate(block.ops)}
    for op in list(block.ops):
        if isinstance(op, MoveOp) and isinstance(op.input.owner, CommunicationOp):
            users = [use.operation for use in uses_of(op.output)]
            op.detach()
            if users:
                block.insert_op_before(op, min(users, key=lambda user: positions[user]))
            else:
                op.erase()


def _receive(entry: FuncOp) -> None:
    """Each send that is waited for arrives on the first stream of its device from which nothing is waited for."""
    waited: dict[int, dict[str, SSAValue]] = defaultdict(dict)
    for op in entry.body.block.ops:
        if isinstance(op, MoveOp) and isinstance(op.input.owner, SendOp):
            on = placement(op.input.type)
            if on is not None and waited[on.device].get(on.stream) is op.input:
                del waited[on.device][on.stream]
        elif isinstance(op, SendOp) and (on := placement(op.output.type)) is not None and on.stream == RECEIVE:
            taken = waited[on.device]
            stream = next(name for i in count() if (name := f"{RECEIVE}-{i}" if i else RECEIVE) not in taken)
            new = Rewriter.replace_value_with_new_type(
                op.output, placed(op.output.type, on_device(on.device, stream, on.count))
            )
            if new.first_use is not None:
                taken[stream] = new
