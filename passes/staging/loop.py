"""The loop over microbatches: in goes a staged entry whose calls take the whole batch; out comes one in which the calls of the forward
and the backward part are a function that runs once per microbatch, on its rows, and adds up gradients as it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from xdsl.dialects.builtin import IndexType, ModuleOp, StringAttr, SymbolRefAttr, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue

from distir.dialects.dist import BatchRowsOp, MicrobatchesOp, PutRowsOp, TakeRowsOp, ZerosOp
from distir.dialects.dist.microbatches import RowsOp
from distir.dialects.sharding import Gather, InputDim, Partial, Rule, RuleAttr, Sharded
from distir.passes.distribution.batch.batch_axis import BatchRefused
from distir.passes.distribution.inline import erase_unreached
from distir.passes.distribution.options import RULE, SUM
from distir.passes.distribution.pipeline.local_program import LocalProgram, localize
from distir.passes.distribution.pipeline.stages import LOOPED, phase_of, stage_calls
from distir.passes.staging.accumulators import Accumulators, added, sum_rule
from distir.passes.structure import functions, shape_of, unique_symbol


def loop_over_microbatches(module: ModuleOp, batch: Mapping[int, int], count: int) -> None:
    """Rewrites the staged entry of a module. Raises BatchRefused where the rules forbid to cut the batch into so many parts."""
    program = localize(module, batch, count)
    staged = {call.callee.string_value(): call for call in stage_calls(program.entry)}
    loop = _Loop(module, program, count)
    loop.build()
    for function in functions(module).values():
        for op in [op for op in function.body.block.ops if isinstance(op, BatchRowsOp)]:
            op.output.replace_all_uses_with(op.input)
            function.body.block.erase_op(op)
    erase_unreached(module, program.entry.sym_name.data)
    taken = functions(module)
    for call in (op for op in loop.body.ops if isinstance(op, CallOp)):
        name = loop.names[call]
        if name in staged and name not in taken:
            taken[call.callee.string_value()].sym_name = StringAttr(name)
            call.callee = SymbolRefAttr(name)


@dataclass
class _Loop:
    module: ModuleOp
    program: LocalProgram
    count: int
    body: Block = field(default_factory=Block)
    given: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """What stands in the body for a value of the entry."""
    rows: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """The same, cut."""
    names: dict[Operation, str] = field(default_factory=dict[Operation, str])
    """What the call of the entry that a call in the body stands for runs."""
    left: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """What the body returns for a value of the entry."""
    wanted: list[OpResult] = field(default_factory=list[OpResult])
    """Results of calls in the loop that are used after it."""

    def build(self) -> None:
        entry, pairs = self.program.entry, self._pairs()
        looped = [call for call in pairs if phase_of(call) in LOOPED]
        if not looped:
            return
        owners = {*looped}
        results = [result for call in looped for result in call.results]
        self.wanted = [r for r in results if any(use.operation not in owners for use in r.uses)]
        taken = list(dict.fromkeys(v for call in looped for v in call.operands if v not in set(results)))
        self.body = Block(arg_types=[*(v.type for v in (*taken, *self.wanted)), IndexType()])
        for value, argument in zip((*taken, *self.wanted), self.body.args, strict=False):
            argument.name_hint = value.name_hint
        self.body.args[-1].name_hint = "k"
        self.given = dict(zip(taken, self.body.args, strict=False))
        carried = dict(zip(self.wanted, self.body.args[len(taken) :], strict=False))
        for call in looped:
            self._run(call, pairs[call], carried)
        self.body.add_op(ReturnOp(*(self.left[value] for value in self.wanted)))
        name = unique_symbol(self.module, "microbatch")
        types = list(self.body.arg_types), [v.type for v in self.wanted]
        function = FuncOp(name, types, Region(self.body), visibility="private")
        self.module.body.block.insert_op_after(function, entry)
        block = entry.body.block
        zeros = [self._zeros(value) for value in self.wanted]
        loop = MicrobatchesOp(name, taken, [op.output for op in zeros], self.count)
        for op in (*zeros, loop):
            block.insert_op_before(op, looped[-1])
        for value, result in zip(self.wanted, loop.results, strict=True):
            result.name_hint = value.name_hint
            value.replace_uses_with_if(result, lambda use: use.operation not in owners)
        for call in reversed(looped):
            block.erase_op(call)

    def _pairs(self) -> dict[CallOp, CallOp]:
        """The calls of the entry, with those at the rows of one microbatch."""
        program = self.program
        return dict(zip(stage_calls(program.entry), stage_calls(program.local), strict=True))

    def _run(self, call: CallOp, local: CallOp, carried: Mapping[OpResult, SSAValue]) -> None:
        """Adds a call to the body, which adds to the sums what nothing else needs."""
        operands = [self._operand(value) for value in call.operands]
        new = CallOp(local.callee.string_value(), operands, [r.type for r in local.results])
        new.attributes.update(call.attributes)
        self.body.add_op(new)
        sums = [r for r in call.results if r in carried and self._is_sum(r) and _leaves_only(r, self.wanted)]
        if sums:
            totals = [carried[r] for r in sums]
            new = Accumulators(self.module).call_adding(new, [r.index for r in sums], totals)
        self.names[new] = call.callee.string_value()
        for old, result in zip(call.results, new.results, strict=True):
            result.name_hint = old.name_hint
            self.given[old] = result
            if old in carried:
                self.left[old] = result if old in sums else self._leaving(old, carried[old])

    def _operand(self, value: SSAValue) -> SSAValue:
        """A value of the entry for one microbatch: its rows, if it is cut."""
        state = self.program.batch[value]
        is_inner = isinstance(value, OpResult) and phase_of(value.op) in LOOPED
        if is_inner or not isinstance(state, Sharded):
            return self.given[value]
        if value not in self.rows:
            op = TakeRowsOp(self.given[value], self.body.args[-1], state.dim, self.count)
            op.attributes[RULE] = RuleAttr(rows_rule(op, shape_of(value), self.count))
            op.output.name_hint = value.name_hint
            self.body.add_op(op)
            self.rows[value] = op.output
        return self.rows[value]

    def _is_sum(self, value: SSAValue) -> bool:
        return self.program.batch[value] == SUM

    def _leaving(self, value: OpResult, before: SSAValue) -> SSAValue:
        """What the body returns of a value: the sum so far, all rows so far, or what is the same in every microbatch."""
        state, result = self.program.batch[value], self.given[value]
        name = value.name_hint or "value"
        if state == SUM:
            return added([before], result, self.body)
        if isinstance(state, Partial):
            raise BatchRefused(f"microbatch: %{name} is a {state.reduction} over microbatches: only sums are added up")
        if not isinstance(state, Sharded):
            return result
        if len({*state.pieces}) > 1:
            raise BatchRefused(
                f"microbatch: %{name} {list(shape_of(value))}, which is needed whole, has unequal numbers of rows of a microbatch in "
                f"{len(state.pieces)} places: use microbatches=1"
            )
        op = PutRowsOp(result, before, self.body.args[-1], state.dim, len(state.pieces))
        op.attributes[RULE] = RuleAttr(rows_rule(op, shape_of(value), self.count))
        op.output.name_hint = value.name_hint
        self.body.add_op(op)
        return op.output

    def _zeros(self, value: SSAValue) -> ZerosOp:
        op = ZerosOp(value.type)
        op.attributes[RULE] = RuleAttr(sum_rule(cast("TensorType[Any]", value.type).get_num_dims(), 0))
        op.output.name_hint = value.name_hint
        return op


def _leaves_only(value: OpResult, wanted: list[OpResult]) -> bool:
    """Whether nothing in the loop uses a value that leaves it."""
    return value in wanted and all(
        not isinstance(use.operation, CallOp) or phase_of(use.operation) not in LOOPED for use in value.uses
    )


def rows_rule(op: RowsOp, shape: tuple[int, ...], count: int) -> Rule:
    """The rule of taking or putting the rows of a microbatch: the rows of each microbatch are cut alike, other dims as they are."""
    places = len(op.moves(0)) if isinstance(op, PutRowsOp) else 1

    def dims(pieces: int) -> tuple[InputDim, ...]:
        cut = (1,) * pieces if pieces > 1 else ()
        return tuple(InputDim(f"S{i + 1}", pieces=cut if i == op.dim.value.data else ()) for i in range(len(shape)))

    whole, rows = dims(count * places), dims(places)
    if isinstance(op, TakeRowsOp):
        return Rule((whole, ()), {f"S{i + 1}": (Gather(i),) for i in range(len(shape))})
    gathers = {f"S{i + 1}": (Gather(i, pieces=whole[i].pieces),) for i in range(len(shape))}
    return Rule((whole, rows, ()), gathers)
