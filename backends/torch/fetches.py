"""In goes the program of all devices (level 3), out comes the same with collectives of what functions are given on a stream, such as gathers of parameters
that are stored in parts, begun by the callers: as soon as the stream has what they need and has begun what comes before.

In the program a stream of a device runs ahead of its other ones. A process begins messages in the order of its program, and a stream of a GPU waits for what was begun
before: a layer's gather would begin only with the layer, not beside the one before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import CallOp as FuncCallOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import Pure

from distir.dialects.dist import CallOp, MoveOp
from distir.dialects.dist.attributes import MAIN_STREAM, placement, relocated
from distir.dialects.dist.communication import CollectiveOp
from distir.interpreters.entry import entry_function
from distir.interpreters.walk import uses_of, values_read

Stream = tuple[int, str]
"""Of a device."""


def begun_by_callers(module: ModuleOp, entry: str = "main") -> ModuleOp:
    """A module of its own if anything is to move, else the same. No value may be on a group (`interpreters.ranks.explicit`)."""
    if not any(_fetches(op) for op in module.ops if isinstance(op, FuncOp) and op.sym_name.data != entry):
        return module
    module = module.clone()
    moving = _Moving(module)
    moving.function(entry_function(module, entry))
    return module


class _Moving:
    """Visits functions, callees first."""

    def __init__(self, module: ModuleOp) -> None:
        self._table = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
        self._sites: dict[str, list[CallOp]] = {}
        self._streams: dict[str, set[Stream]] = {}
        """Other than main ones, on which something is done in each function that was visited."""
        for op in module.walk():
            if isinstance(op, CallOp):
                self._sites.setdefault(op.callee_name, []).append(op)

    def function(self, function: FuncOp) -> None:
        name = function.sym_name.data
        self._streams[name] = set()
        for op in list(function.body.block.ops):
            if isinstance(op, CallOp | FuncCallOp):
                callee = op.callee_name if isinstance(op, CallOp) else op.callee.string_value()
                if callee not in self._streams:
                    self.function(self._table[callee])
        for fetch in _fetches(function) if name in self._sites else ():
            self._begin_outside(function, fetch)
        for op in function.body.block.ops:
            self._streams[name] |= self._streams_of(op)

    def _streams_of(self, op: Operation) -> set[Stream]:
        """On which other streams an operation does something."""
        if isinstance(op, CallOp):
            return {(op.devices[device], stream) for device, stream in self._streams[op.callee_name]}
        places = [placement(value.type) for value in (*op.operands, *op.results)]
        return {(on.device, on.stream) for on in places if on is not None and on.stream != MAIN_STREAM}

    def _begin_outside(self, function: FuncOp, fetch: Sequence[Operation]) -> None:
        """Callers do these operations, of which the last is a collective, and give its results."""
        block, collective = function.body.block, fetch[-1]
        given = [v for v in dict.fromkeys(v for op in fetch for v in op.operands) if isinstance(v, BlockArgument)]
        places = sorted(argument.index for argument in given)
        for site in self._sites[function.sym_name.data]:
            values: dict[SSAValue, SSAValue] = {argument: site.operands[argument.index] for argument in given}
            copies: list[Operation] = []
            for op in fetch:
                copies.append(copy := op.clone(values))
                for result, original in zip(copy.results, op.results, strict=True):
                    moved = Rewriter.replace_value_with_new_type(result, relocated(result.type, site.devices))
                    moved.name_hint = original.name_hint
                values.update(zip(op.results, copy.results, strict=True))
            Rewriter.insert_op(copies, self._where(site, list(values.values())[: len(given)], copies))
            kept = [value for i, value in enumerate(site.operands) if i not in places]
            site.operands = [*kept, *copies[-1].results]
        for result in collective.results:
            argument = block.insert_arg(result.type, len(block.args))
            argument.name_hint = result.name_hint
            result.replace_all_uses_with(argument)
        for op in reversed(fetch):
            block.erase_op(op)
        for i in reversed(places):
            block.erase_arg(block.args[i])
        function.function_type = FunctionType.from_lists([*block.arg_types], [*function.function_type.outputs])

    def _where(self, site: CallOp, needed: Sequence[SSAValue], fetch: Sequence[Operation]) -> InsertPoint:
        """Before a call, but after what makes what is needed and what the streams do before. That something else is moved to them is nothing to wait for."""
        streams = set[Stream]().union(*map(self._streams_of, fetch))
        makers = {value.owner for value in needed}
        op = site.prev_op
        while op is not None and op not in makers:
            if not isinstance(op, MoveOp) and not streams.isdisjoint(self._streams_of(op)):
                break
            op = op.prev_op
        block = site.parent
        assert isinstance(block, Block)
        return InsertPoint.at_start(block) if op is None else InsertPoint.after(op)


def _fetches(function: FuncOp) -> list[list[Operation]]:
    """Of each collective on a stream whose operands are made of arguments alone, that are there for nothing else: what makes them, in order, and the collective."""
    return [
        fetch for op in function.body.block.ops if isinstance(op, CollectiveOp) and (fetch := [*_made_for(op)][::-1])
    ]


def _made_for(collective: CollectiveOp) -> Iterator[Operation]:
    """The collective and what makes its operands, last first; nothing if they are made of anything but arguments for it."""
    found: dict[Operation, None] = {collective: None}
    waiting = [*values_read(collective)]
    while waiting:
        value = waiting.pop()
        on = placement(value.type)
        if on is None or on.stream == MAIN_STREAM or any(use.operation not in found for use in uses_of(value)):
            return
        if isinstance(value, BlockArgument):
            continue
        maker = value.owner
        assert isinstance(maker, Operation)
        if not maker.has_trait(Pure) or isinstance(maker, CollectiveOp | CallOp) or maker.regions:
            return
        if maker in found:
            continue
        found[maker] = None
        waiting += values_read(maker)
    yield from found
