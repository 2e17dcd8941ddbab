"""The batch axis of a whole program. In go the entry and its batch dims; out comes the phase of each operation:
before the loop over microbatches, inside it or after it. Calls whose bodies do not fit one phase are inlined into the entry first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from distir.dialects.dist import BatchRowsOp
from distir.dialects.sharding import REPLICATED, Partial, Replicated, Sharded
from distir.interpreters.walk import values_read
from distir.passes.distribution.batch.batch_axis import (
    BatchPropagation,
    FunctionAxis,
    NeedsWhole,
    Phase,
    RowsApart,
    batch_states,
    explain,
)
from distir.passes.distribution.batch.deferred_scale import defer_scales
from distir.passes.distribution.inline import inline_calls
from distir.passes.distribution.options import SUM, replicate
from distir.passes.structure import callee_of, calls_first, text, user_of


@dataclass
class BatchAxis:
    """The entry along the batch axis."""

    shards: int
    body: FunctionAxis
    phases: dict[Operation, Phase]
    propagation: BatchPropagation
    """What is known of the functions that the entry calls."""
    gathered: NeedsWhole | None = None
    """The first operation that runs after the loop because it needs the whole of a value in parts."""


def axis_of_entry(
    module: ModuleOp, entry: FuncOp, batch: Mapping[int, int], shards: int, gathers: bool = False
) -> BatchAxis:
    """The batch axis of the entry, of which the loop over microbatches `gathers` or not (`follow_batch`); calls inside which a value leaves the axis
    are inlined until none is."""
    while True:
        if shards > 1:
            defer_scales(module, entry, batch, lambda op: gathers and made_of_inputs(op, entry) is not None)
        try:
            return follow_batch(module, entry, batch, shards, gathers)
        except NeedsWhole as error:
            hidden = _callees_with(module, error)
            if not hidden:
                raise explain(error, shards, gathers) from None
            inline_calls(module, entry, hidden)


def _callees_with(module: ModuleOp, error: NeedsWhole) -> frozenset[str]:
    """The functions that reach the op of an error, other than the entry itself; of a call, the one that it names."""
    if isinstance(error.op, CallOp):
        return frozenset({error.op.callee.string_value()})
    holder = error.op.parent_op()
    reaching = {holder.sym_name.data} if isinstance(holder, FuncOp) else set[str]()
    for function in calls_first(module):
        if any(callee_of(op) in reaching for op in function.body.block.ops):
            reaching.add(function.sym_name.data)
    return (
        frozenset() if isinstance(holder, FuncOp) and holder.sym_name.data == "main" else frozenset(reaching - {"main"})
    )


def follow_batch(
    module: ModuleOp, entry: FuncOp, batch: Mapping[int, int], shards: int, gathers: bool = False
) -> BatchAxis:
    """The whole entry along the batch axis; raises NeedsWhole, with the callee's op, where a call must be inlined. Where the loop `gathers`, an
    operation that needs the whole of a value in parts runs outside it: before it if the value is made of inputs alone, otherwise
    after it; and the loop takes rows of what is the same in every microbatch (`dist.batch_rows`). Of a batch in one part all is there at once."""
    gathers = gathers or shards == 1
    early: dict[Operation, NeedsWhole] = {}
    statistics: set[Operation] = set()
    again: set[tuple[Operation, int]] = set()
    roots: set[Operation] = set()
    together = False
    while True:
        for op in [op for op in entry.body.block.ops if isinstance(op, BatchRowsOp)]:
            op.output.replace_all_uses_with(op.input)
            entry.body.block.erase_op(op)
        try:
            return _follow_batch(module, entry, batch, shards, early if gathers else None, statistics, again, together)
        except _BeforeLoop as found:
            roots.add(found.root)
            early |= dict.fromkeys(found.operations, found.error)
        except RowsApart as found:
            again.add((found.op, found.operand))
            _compute_again(found.op, found.operand, entry, early, roots)
        except _Statistics as found:
            statistics |= found.operations
        except _NothingInside:
            together = True
            early.clear()


class _BeforeLoop(Exception):
    """An operation that can run before the loop, on the whole batch, with what it depends on, and why they do."""

    def __init__(self, root: Operation, operations: set[Operation], error: NeedsWhole):
        super().__init__()
        self.root, self.operations, self.error = root, operations, error


def _compute_again(
    op: Operation, operand: int, entry: FuncOp, early: Collection[Operation], roots: Collection[Operation]
) -> None:
    """Gives an operation an operand that is computed for it alone, in the loop and of the rows that it has there, if that was made before the loop: of
    inputs, and of the sums over the batch for which it was (`roots`)."""
    value, copies = op.operands[operand], dict[SSAValue, SSAValue]()
    assert isinstance(value, OpResult)
    needed = set() if value.op in roots else made_of_inputs(value.op, entry, roots) or set()
    if needed.isdisjoint(early):
        return
    ordered = [each for each in entry.body.block.ops if each in needed]
    for each in ordered:
        entry.body.block.insert_op_before(copy := each.clone(copies), op)
        for old, new in zip(each.results, copy.results, strict=True):
            new.name_hint = old.name_hint
    op.operands[operand] = copies[value]
    for each in reversed(ordered):
        if not any(result.uses for result in each.results):
            entry.body.block.erase_op(each)


class _NothingInside(Exception):
    """All of a batch in one part would be before it: nothing needs to be."""


class _Statistics(Exception):
    """Operations whose results are of the whole batch, and that rows of it are combined with: where the batch is one part, they have them at once."""

    def __init__(self, operations: set[Operation]):
        super().__init__()
        self.operations = operations


def _follow_batch(
    module: ModuleOp,
    entry: FuncOp,
    batch: Mapping[int, int],
    shards: int,
    early: Mapping[Operation, NeedsWhole] | None,
    statistics: Collection[Operation] = (),
    again: Collection[tuple[Operation, int]] = (),
    together: bool = False,
) -> BatchAxis:
    propagation = BatchPropagation(module, shards)
    states = batch_states(entry, batch, shards)
    axis = FunctionAxis(dict(zip(entry.body.block.args, states, strict=True)))
    phases: dict[Operation, Phase] = {}
    axis.outside, axis.early, axis.again = phases if early is not None else None, early or (), again
    gathered: NeedsWhole | None = None
    for op in list(entry.body.block.ops):
        if isinstance(op, ReturnOp):
            axis.results = tuple(axis.states[v] for v in op.operands)
            continue
        if early is not None and op in early:
            phases[op] = Phase.BEFORE
            axis.chosen[op] = replicate(op)
            axis.states.update((result, REPLICATED) for result in op.results)
            continue
        phases[op] = _phase_of_operands(op, axis, phases)
        whole = shards == 1 and early is not None and any(isinstance(axis.states[v], Sharded) for v in values_read(op))
        if whole and phases[op] is Phase.AFTER and (found := _statistics(op, axis, phases, statistics)):
            raise _Statistics(found)
        if phases[op] is not Phase.AFTER:
            try:
                if op in statistics:
                    _follow_statistic(op, axis, propagation)
                else:
                    propagation.follow(op, axis)
                if early is not None and shards > 1:
                    _require_sums(op, axis)
            except NeedsWhole as error:
                gathers = early is not None and error.op is op
                if gathers and not together and (root := _before_loop(op, error, entry)) is not None:
                    raise _BeforeLoop(root, made_of_inputs(root, entry) or set(), error) from None
                if whole and error.op is op and (found := _statistics(op, axis, phases, statistics)):
                    raise _Statistics(found) from None
                if whole or isinstance(error.state, Sharded):
                    if not gathers or error.beside is not None:
                        raise
                    gathered = gathered or error
                phases[op] = Phase.AFTER
        if phases[op] is Phase.AFTER:
            _follow_after(op, axis, phases, shards, gathers=early is not None)
        elif phases[op] is Phase.BEFORE and any(axis.states[r] != REPLICATED for r in op.results):
            phases[op] = Phase.INSIDE
    for op, phase in phases.items():  # producers that were asked to give cut values run inside after all
        if isinstance(op, BatchRowsOp):
            continue
        if phase is Phase.BEFORE and any(axis.states[r] != REPLICATED for r in op.results):
            phases[op] = Phase.INSIDE
    for op in reversed(phases):  # what only operations after the loop take would be held throughout
        users = [user_of(result, use) for result in op.results for use in result.uses]
        updates = users and all(phases.get(user) is Phase.AFTER for user in users)
        if updates and phases[op] is Phase.BEFORE and op not in (early or ()):
            phases[op] = Phase.AFTER
    needs_whole = gathered or next(iter((early or {}).values()), None)
    if needs_whole is not None and Phase.INSIDE not in phases.values():  # nothing would be left in the loop
        if shards == 1 and early and not together:
            raise _NothingInside
        raise needs_whole
    return BatchAxis(shards, axis, phases, propagation, gathered)


def _before_loop(op: Operation, error: NeedsWhole, entry: FuncOp) -> Operation | None:
    """What can run before the loop so that an operation has what it needs: itself, or the sum over the batch that it takes (how many labels count); None
    if either depends on parameters."""
    roots = [op, *([error.beside.op] if isinstance(error.beside, OpResult) else [])]
    return next((root for root in roots if made_of_inputs(root, entry) is not None), None)


def made_of_inputs(op: Operation, entry: FuncOp, known: Collection[Operation] = ()) -> set[Operation] | None:
    """An operation and what it depends on, but for what is known, if no parameter or state is among that."""
    attributes, found, todo = entry.arg_attrs, set[Operation](), [op]
    while todo:
        if (each := todo.pop()) in found:
            continue
        found.add(each)
        for value in values_read(each):
            if isinstance(value, OpResult):
                todo += [value.op] if value.op not in known else []
            elif attributes is not None and isinstance(value, BlockArgument):
                if text(attributes.data[value.index].data, "dist.role", "input") in ("parameter", "state", "buffer"):
                    return None
    return found


def _statistics(
    op: Operation, axis: FunctionAxis, phases: Mapping[Operation, Phase], known: Collection[Operation]
) -> set[Operation]:
    """Of an operation that takes rows of the batch: what it takes beside them that is a sum over the batch or would be there after the loop only,
    and what leads from the one to the other. Nothing if all of it is known."""
    found, todo = set[Operation](), [op]
    while todo:
        for value in values_read(todo.pop()):
            if isinstance(value, OpResult) and value.op not in found:
                if phases[value.op] is Phase.AFTER or isinstance(axis.states[value], Partial):
                    found.add(value.op)
                    todo.append(value.op)
    return found - set(known)


def _follow_statistic(op: Operation, axis: FunctionAxis, propagation: BatchPropagation) -> None:
    """Sums that it makes are there when they are made, of one part."""
    propagation.follow(op, axis)
    axis.states.update((result, REPLICATED) for result in op.results if isinstance(axis.states[result], Partial))


def _require_sums(op: Operation, axis: FunctionAxis) -> None:
    """What microbatches make of their rows is added up after each; what is combined otherwise needs all of them."""
    if any(isinstance(axis.states[r], Partial) and axis.states[r] != SUM for r in op.results):
        values = values_read(op)
        index = next((i for i, v in enumerate(values) if isinstance(axis.states[v], Sharded)), 0)
        raise NeedsWhole(op, index, axis.states[values[index]])


def _phase_of_operands(op: Operation, axis: FunctionAxis, phases: Mapping[Operation, Phase]) -> Phase:
    producers = [phases[v.op] for v in values_read(op) if isinstance(v, OpResult)]
    if Phase.AFTER in producers:
        return Phase.AFTER
    cut = any(not isinstance(axis.states[v], Replicated) for v in values_read(op))
    return Phase.INSIDE if cut or Phase.INSIDE in producers else Phase.BEFORE


def _follow_after(
    op: Operation, axis: FunctionAxis, phases: Mapping[Operation, Phase], shards: int, gathers: bool
) -> None:
    """After the loop every addend has been accumulated; a value in several parts would have to be gathered, which is
    refused unless the loop `gathers`."""
    values = values_read(op)
    reduced = (v for v in values if isinstance(v, OpResult) and phases[v.op] is Phase.AFTER)
    for index, value in enumerate(values):
        if isinstance(state := axis.states[value], Sharded) and shards > 1 and not gathers:
            raise NeedsWhole(op, index, state, next(reduced, None))
    if not isinstance(op, CallOp):
        axis.chosen[op] = replicate(op)
    axis.states.update((result, REPLICATED) for result in op.results)
