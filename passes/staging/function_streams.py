"""Communication beside computation inside functions. In goes a placed program; out comes the program with its
collectives on streams of their own, where there is something to compute meanwhile.

A collective of what a function is given, such as the gather of a parameter that is stored in parts, runs on the stream `prefetch`, with what makes its operands, as sharded
data parallelism fetches parameters ahead: only so many calls ahead of computation, since what is gathered is held until then. One of which the result is only
returned, and not waited for by callers at once, such as the reduction of a gradient, runs on the stream `reduce`, with its conversion and its addition to the sum over
microbatches. Any other beside which something is computed runs on the stream `collective`, and is waited for where its result is first used. What a function takes for a stream alone it takes on the stream, and a result that is returned stays
on its stream until a caller uses it: layers do not wait for each other's messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure

from distir.dialects.dist import AccumulateOp, CallOp, MoveOp
from distir.dialects.dist.attributes import MAIN_STREAM, on_device, placed, placement, relocated
from distir.dialects.dist.calls import is_kernel
from distir.dialects.dist.communication import CollectiveOp
from distir.interpreters.walk import uses_of
from distir.passes.distribution.pipeline.buckets import bytes_of, joins_with
from distir.passes.distribution.pipeline.chunks import Chunks, block_of, following, is_computed_beside
from distir.passes.distribution.pipeline.streams import COLLECTIVE, join_reductions, stream_of
from distir.passes.structure import functions

PREFETCH, REDUCE = "prefetch", "reduce"


def overlap_in_functions(module: ModuleOp, entry: FuncOp, bucket_bytes: int, chunks: Chunks, ahead: int) -> None:
    """Moves the collectives of the functions that the entry calls, and of the entry, joined to buckets of at most so many bytes; those that would be waited for in
    chunks. What is fetched `ahead` waits until computation has come as near as so many calls, or collectives beside calls; 0: until nothing."""
    calls = _Calls(module, entry)
    for function in calls.callees_first:
        if function is not entry:
            _fetch_together(function, bucket_bytes)
            join_reductions(function, bucket_bytes)
            for op in chunks.cut(function.body.block, calls.lingers):
                _on_stream(COLLECTIVE, [op])
        for op in [op for op in function.body.block.ops if isinstance(op, CollectiveOp)][
            ::-1
        ]:  # what is made of it first
            if _is_on_main((*op.operands, *op.results)):
                _overlap(op, calls)
        later = _fetched_later(function, ahead, function is entry) if ahead else set[Operation]()
        if function is not entry:
            calls.take_on_streams(function, later)
            calls.return_on_streams(function)


class _Calls:
    """Which functions of a program are called where."""

    def __init__(self, module: ModuleOp, entry: FuncOp):
        self.entry = entry
        self._table = functions(module)
        self.sites: dict[FuncOp, list[CallOp]] = {}
        self.callees_first: list[FuncOp] = []
        self._visit(entry)

    def _visit(self, function: FuncOp) -> None:
        self.sites[function] = []
        for op in function.body.block.ops:
            if isinstance(op, CallOp) and not is_kernel(callee := self._table[op.callee_name]):
                if callee not in self.sites:
                    self._visit(callee)
                self.sites[callee].append(op)
        self.callees_first.append(function)

    def lingers(self, value: SSAValue, in_every_call: bool = True) -> bool:
        """Whether something is computed between a value and its first use, in its function or, of one that is only returned, in every caller, or in one."""
        if any(not isinstance(use.operation, ReturnOp) for use in value.uses):
            return _goes_on(value) is not None or is_computed_beside(value) or self._lingers_inside(value)
        function = block_of(value).parent_op()
        if function is self.entry or not isinstance(function, FuncOp):
            return True
        indices = {use.index for use in value.uses}
        found = (self.is_beside(site.results[i], in_every_call) for site in self.sites[function] for i in indices)
        return all(found) if in_every_call else any(found)

    def is_beside(self, value: SSAValue, in_every_call: bool = True) -> bool:
        """The same, or that something is computed after a value that is returned."""
        return is_computed_beside(value) or self.lingers(value, in_every_call)

    def _lingers_inside(self, value: SSAValue) -> bool:
        """Whether a value that is given to a call at once lingers in what is called, which only adds to it: the sum of microbatches."""
        users = {use.operation for use in uses_of(value)}
        first = next((op for op in following(value) if op in users), None)
        callee = self._table.get(first.callee_name) if isinstance(first, CallOp) else None
        if first is None or callee is None or callee not in self.sites:
            return False
        given = [argument for argument, v in zip(callee.body.block.args, first.operands, strict=True) if v is value]
        return all(_is_sum(argument) and is_computed_beside(argument) for argument in given)

    def take_on_streams(self, function: FuncOp, later: set[Operation]) -> None:
        """Arguments that are needed on one stream alone are taken on it: callers move them there as soon as they are made. Those that go there `later` are not."""
        for argument in function.body.block.args:
            users = [use.operation for use in argument.uses]
            moves = [user for user in users if isinstance(user, MoveOp)]
            types = {move.output.type for move in moves}
            if len(moves) < len(users) or len(types) != 1 or not later.isdisjoint(moves):
                continue
            (type_,) = types
            on = placement(type_)
            assert on is not None
            for move in moves:
                move.output.replace_all_uses_with(argument)
                function.body.block.erase_op(move)
            Rewriter.replace_value_with_new_type(argument, type_)
            for site in self.sites[function]:
                site.operands[argument.index] = _moved(site.operands[argument.index], on.stream)
        _restate(function)

    def return_on_streams(self, function: FuncOp) -> None:
        """Results that come back from a stream only to be returned are returned on it, and come back where callers use them."""
        last = function.body.block.last_op
        assert last is not None
        for index, value in enumerate(last.operands):
            move = value.owner
            if not isinstance(move, MoveOp) or not _is_on_main([value]) or _is_on_main([move.input]):
                continue
            if not value.has_one_use():
                continue
            last.operands[index] = move.input
            function.body.block.erase_op(move)
            for site in self.sites[function]:
                type_ = relocated(last.operands[index].type, site.devices)
                result = Rewriter.replace_value_with_new_type(site.results[index], type_)
                _come_back(result)
        _restate(function)


def _overlap(op: CollectiveOp, calls: _Calls) -> None:
    """Puts one collective on a stream, if anything runs beside it there."""
    if (early := _made_of_arguments(op)) is not None:
        _on_stream(PREFETCH, [*early, op])
        return
    after, ends = _made_of_it(op)
    goes_on = next(filter(None, map(_goes_on, ends)), None)
    if goes_on is not None or any(calls.is_beside(end, in_every_call=not _is_of_sum(end)) for end in ends):
        is_returned = all(isinstance(use.operation, ReturnOp) for end in ends for use in end.uses)
        is_left = is_returned and any(_is_of_sum(end) or calls.lingers(end) for end in ends)
        _on_stream(goes_on or (REDUCE if is_left else COLLECTIVE), [op, *after])


def _fetch_together(function: FuncOp, bucket_bytes: int) -> None:
    """Has collectives of what a function is given come right after the first that each can be joined to, in a bucket of at most so many bytes."""
    block = function.body.block
    buckets: dict[object, tuple[Operation, int]] = {}
    for op in [op for op in block.ops if isinstance(op, CollectiveOp) and _is_on_main((*op.operands, *op.results))]:
        early, key, size = _made_of_arguments(op), joins_with(op), bytes_of(op)
        if early is None or key is None:
            continue
        last, filled = buckets.get(key, (op, bucket_bytes))
        if filled + size <= bucket_bytes:
            for each in (*early, op):
                each.detach()
            block.insert_ops_after([*early, op], last)
            size += filled
        buckets[key] = op, size


def _fetched_later(function: FuncOp, ahead: int, is_entry: bool) -> set[Operation]:
    """Has what goes to the stream `prefetch` for a call, or a collective, go there only where as many of these as may be `ahead` come before it, and returns what goes there later than at
    first. Of a function without such calls, as of a layer, all is fetched when it is called: it takes on the stream what it fetches."""
    block = function.body.block
    order = {op: i for i, op in enumerate(block.ops)}
    units = [op for op in order if isinstance(op, CollectiveOp | CallOp) and any(map(_is_fetched, op.operands))]
    later: set[Operation] = set()
    if not is_entry and not any(isinstance(op, CallOp) for op in units):
        return later
    before: dict[tuple[int, ...], list[Operation]] = {}
    done: set[Operation] = set()
    for unit in units:
        on = next(placement(value.type) for value in unit.operands if _is_fetched(value))
        assert on is not None
        own, makers = before.setdefault(tuple(on.devices), []), _made_on_stream(unit)
        own.append(unit)
        new = [op for op in makers if op not in done]
        done.update(new)
        if len(own) <= ahead:
            continue
        first = own[-1 - ahead]
        for op in [op for op in new if order[op] < order[first]]:
            op.detach()
            block.insert_op_before(op, first)
            later.add(op)
    return later


def _made_on_stream(op: Operation) -> list[Operation]:
    """What takes the operands of an operation to the stream `prefetch`, and what is made of them there, in order."""
    found: dict[Operation, None] = {}
    waiting = [value for value in op.operands if _is_fetched(value)]
    while waiting:
        value = waiting.pop()
        if isinstance(value.owner, Operation) and not isinstance(value.owner, CollectiveOp | CallOp):
            found.pop(value.owner, None)
            found[value.owner] = None
            waiting += [v for v in value.owner.operands if _is_fetched(v)]
    return list(found)[::-1]


def _is_fetched(value: SSAValue) -> bool:
    return stream_of(value) == PREFETCH


def _on_stream(stream: str, moved: Sequence[Operation]) -> None:
    """Puts operations on a stream. What else is made of their results has these come back."""
    for each in moved:
        _place(each, stream)
    for result in [result for each in moved for result in each.results]:
        _come_back(result)


def _made_of_it(op: Operation) -> tuple[list[Operation], list[OpResult]]:
    """What is made of the results alone and is all that they are for (a conversion of a gradient, what a bucket is taken apart to), with the sums over microbatches
    to which that is added; and the values with which it ends."""
    found, ends = list[Operation](), list[OpResult]()
    waiting = [*op.results]
    while waiting:
        value = waiting.pop(0)
        user = uses_of(value)[0].operation if value.has_one_use() else None
        if user is not None and _goes_with(user, value):
            found.append(user)
            waiting += user.results
        else:
            ends.append(value)
    return found, ends


def _goes_with(op: Operation, value: OpResult) -> bool:
    """Whether an operation does something to a value alone, or adds it to a sum."""
    if not op.has_trait(Pure) or isinstance(op, CollectiveOp | CallOp) or op.regions:
        return False
    return len(op.operands) == 1 or _adds_to_argument(op, value)


def _adds_to_argument(op: Operation, value: SSAValue) -> bool:
    """Whether an operation only adds a value to what its function is given for that."""
    others = [each for each in op.operands if each is not value]
    return isinstance(op, AccumulateOp) and all(isinstance(v, BlockArgument) and _is_sum(v) for v in others)


def _is_of_sum(value: SSAValue) -> bool:
    """Whether a value is a sum over microbatches: at most the last of them waits for it."""
    return isinstance(value.owner, AccumulateOp)


def _is_sum(argument: SSAValue) -> bool:
    """Whether a function adds to what it is given, and uses it for nothing else."""
    return argument.has_one_use() and isinstance(uses_of(argument)[0].operation, AccumulateOp)


def _made_of_arguments(op: Operation) -> list[Operation] | None:
    """What makes the operands out of arguments and is there for nothing else; None if they need anything that is computed or received."""
    found: dict[Operation, None] = {}
    waiting = [v for v in op.operands if not isinstance(v, BlockArgument)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, BlockArgument) or value.owner in found:
            continue
        maker = value.owner
        assert isinstance(maker, Operation)
        alone = all(use.operation is op or use.operation in found for result in maker.results for use in result.uses)
        if not alone or not maker.has_trait(Pure) or isinstance(maker, CollectiveOp | CallOp) or maker.regions:
            return None
        if not _is_on_main((*maker.operands, *maker.results)):
            return None
        found[maker] = None
        waiting += maker.operands
    return list(found)[::-1]


def _place(op: Operation, stream: str) -> None:
    """The operation on a stream: its operands move there where they are made."""
    for index, value in enumerate(op.operands):
        if _is_on_main([value]):
            op.operands[index] = _moved(value, stream)
    for result in list(op.results):
        on = placement(result.type)
        assert on is not None
        Rewriter.replace_value_with_new_type(result, placed(result.type, on_device(on.device, stream, on.count)))


def _moved(value: SSAValue, stream: str) -> SSAValue:
    """A value on a stream, from where it is made on."""
    block = block_of(value)
    for use in value.uses:
        if isinstance(use.operation, MoveOp) and use.operation.parent is block:
            if stream_of(use.operation.output) == stream:
                return use.operation.output
    move = MoveOp(value, stream)
    move.output.name_hint = value.name_hint
    if isinstance(value, OpResult):
        block.insert_op_after(move, value.op)
    else:
        assert block.first_op is not None
        block.insert_op_before(move, block.first_op)
    return move.output


def _restate(function: FuncOp) -> None:
    """The type of a function, of what it takes and returns."""
    block = function.body.block
    assert block.last_op is not None
    function.function_type = FunctionType.from_lists([*block.arg_types], [v.type for v in block.last_op.operands])


def _come_back(value: SSAValue) -> None:
    """Has a value on a stream come back to the main one where it is first used there."""
    there = set[Operation]()  # what was given it on the stream until now
    for move in [use.operation for use in value.uses if isinstance(use.operation, MoveOp)]:
        if move.output.type == value.type:
            there |= {use.operation for use in move.output.uses}
            move.output.replace_all_uses_with(value)
            block_of(value).erase_op(move)

    def stays(user: Operation) -> bool:
        return user in there or _makes_on_stream_of(value, user)

    users = {use.operation for use in uses_of(value) if not stays(use.operation)}
    if not users:
        return
    move = MoveOp(value, MAIN_STREAM)
    move.output.name_hint = value.name_hint
    value.replace_uses_with_if(move.output, lambda use: use.operation is not move and not stays(use.operation))
    block_of(value).insert_op_before(move, next(op for op in following(value) if op in users))


def _makes_on_stream_of(value: SSAValue, user: Operation) -> bool:
    return any(stream_of(result) == stream_of(value) for result in user.results)


def _goes_on(value: SSAValue) -> str | None:
    """The stream of collectives on which alone a value is used; None if it is used elsewhere."""
    users = [use.operation for use in value.uses]
    streams = {stream_of(user.output) if isinstance(user, MoveOp) else None for user in users}
    return next(iter(streams), None) if len(streams) == 1 and streams <= {COLLECTIVE, REDUCE} else None


def _is_on_main(values: Iterable[SSAValue]) -> bool:
    return all(stream_of(value) == MAIN_STREAM for value in values)
