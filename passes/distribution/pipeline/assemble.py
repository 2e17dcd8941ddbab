"""The entry of a D/T/P program: its arguments on all devices, the loop over microbatches of every replica in the order of a
schedule, reduction over replicas, what runs after the loop, and the results.

The loop is written once: each replica calls it on its own devices (`outlined`). Devices are numbered as in
`layout`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.dialects.builtin import (
    UNKNOWN_LOC,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    StringAttr,
    UnitAttr,
    i64,
)
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue

from distir.dialects.dist import AllReduceOp
from distir.dialects.dist import CallOp as DistCallOp
from distir.dialects.dist.attributes import relocated
from distir.dialects.reductions import Reduction, ReductionAttr
from distir.dialects.sharding import REPLICATED, AxesAttr, Partial, Sharded
from distir.interpreters.costs import PARTICIPANTS
from distir.interpreters.entry import REPLICA
from distir.passes.distribution.pipeline.layout import Layout, Tensor, local_types, part_of
from distir.passes.distribution.pipeline.recurring import RecurringSteps
from distir.passes.distribution.pipeline.replica import Replica, Sums
from distir.passes.distribution.pipeline.staged import StagedProgram
from distir.passes.distribution.pipeline.stages import UPDATE, phase_of, stage_of
from distir.passes.structure import name_alike, result_attributes, text, unique_symbol

SUM, PRODUCT = Partial(Reduction.SUM), Partial(Reduction.PROD)


class Assembler:
    """Builds the entry of one plan of a staged program, and with `outlined` the function that all replicas call, where there is
    more than one of both. With `alone`, what the first replica does: all that there is to simulate where the others do the same
    at the same time; collectives over replicas say who takes part (`interpreters/costs`)."""

    def __init__(
        self, staged: StagedProgram, layout: Layout, schedule: str, outlined: bool = True, alone: bool = False
    ):
        self.staged, self.layout, self.alone = staged, layout, alone
        self.count = 1 if alone else layout.dp
        self.tensors = staged.tensors
        self.schedule = schedule
        self.outlined = outlined and self.count > 1 and layout.microbatches > 1
        self.places = staged.given
        self.block = Block()
        self.replicas: list[Replica] = []
        self.built: list[FuncOp] = []
        """The entry, and the functions of a replica and of steps that recur."""
        self._reduced: set[SSAValue] = set()
        named = zip(staged.argument_attributes, staged.entry.body.block.args, strict=True)
        self._by_name = {name: argument for known, argument in named if (name := text(known, "dist.name", ""))}
        self._participants: dict[tuple[int, int], Attribute] = {}

    def build(self) -> FuncOp:
        """The new entry, in the module of the staged program."""
        ports = self._arguments()
        if self.outlined:
            self._call_replicas()
        else:
            self._loop(self.replicas)
            if self.alone:
                self._leaving(self.replicas[0])
                if self.layout.microbatches > 1:
                    self.replicas[0].forget_conversions()
        for call in self.staged.stage_calls:
            if phase_of(call) == UPDATE:
                for value in call.operands:
                    self._reduce(value)
                self._run_once(call, self.replicas)
        return self._finish(ports)

    def remove(self) -> None:
        """Takes what was built out of the module again."""
        for function in self.built:
            function.detach()

    # --- the loop --------------------------------------------------------------------------------------------------

    def _loop(self, replicas: Sequence[Replica]) -> None:
        """What runs before the loop, and the loop, of replicas side by side. In a program that is not to run, steps that recur
        are functions (`recurring`)."""
        staged, layout = self.staged, self.layout
        if staged.to_run or len(replicas) > 1:
            for call, microbatch, sends in staged.in_order(self.schedule, layout):
                for replica in replicas:
                    replica.do(call, microbatch, sends)
            return
        for each in staged.before_loop():
            replicas[0].do(*each)
        self.built += RecurringSteps(replicas[0], self.schedule).write()

    def _run_once(self, call: CallOp, replicas: Sequence[Replica]) -> None:
        """A call outside the loop."""
        for replica in replicas:
            replica.run(call, None)
        for replica in replicas:
            replica.send_results(call, None)

    def _call_replicas(self) -> None:
        """Writes the loop as a function over the devices of one replica, and calls it for each."""
        ranks, layout = self.staged.ranks, Layout(1, self.layout.tp, self.layout.pp, self.layout.microbatches)
        held = self.replicas[0].held
        taken = [(value, place) for value, place in held if isinstance(value, SSAValue) and value in self.staged.looped]
        types = [
            type_ for value, (stage, _) in taken for type_ in self._types(value, layout, self._group(layout, stage, 0))
        ]
        block = Block(arg_types=types)
        inner = self._replica(block, layout, 0)
        for i, key in enumerate(taken):
            inner.held[key] = list(block.args[i * ranks : (i + 1) * ranks])
            name_alike(inner.held[key], key[0].name_hint)
        self._loop([inner])
        singles, groups, values = self._leaving(inner)
        block.add_op(ReturnOp.create(operands=values))
        function = FuncOp(
            unique_symbol(self.staged.module, "replica"),
            (types, [v.type for v in values]),
            Region(block),
            visibility="private",
        )
        function.attributes[REPLICA] = UnitAttr()
        self.staged.module.body.block.add_op(function)
        self.built.append(function)
        for number, replica in enumerate(self.replicas):
            devices = [d for stage in range(layout.pp) for d in self.layout.group(stage, number)]
            name = function.sym_name.data
            op = DistCallOp.create(
                operands=[v for key in taken for v in replica.held[key]],
                result_types=[relocated(v.type, devices) for v in values],
                properties=DistCallOp.stating(name, tuple(devices)),
            )
            self.block.add_op(op)
            given: list[SSAValue] = list(op.results)
            for result, value in zip(given, values, strict=True):
                name_alike([result], value.name_hint)
            for i, value in enumerate(singles):
                replica.held[value, (stage_of(value.op), None)] = given[i * ranks : (i + 1) * ranks]
            for i, sums in enumerate(groups, len(singles)):
                replica.held[sums, (stage_of(sums.call), None)] = given[i * ranks : (i + 1) * ranks]

    def _leaving(self, inner: Replica) -> tuple[list[OpResult], list[Sums], list[SSAValue]]:
        """What is used after the loop: single values, groups of addends, and all of them device by device. Microbatches of a value
        are joined now: the function of a replica ends, and one replica alone has there what it has in the function."""
        after = [call.operands for call in self.staged.stage_calls if phase_of(call) == UPDATE]
        wanted = dict.fromkeys(value for values in (*after, self._returns().operands) for value in values)
        singles: list[OpResult] = []
        groups: dict[Sums, list[SSAValue]] = {}
        values: list[SSAValue] = []
        for value in wanted:
            if not isinstance(value, OpResult) or phase_of(value.op) == UPDATE:
                continue
            sums = Sums(cast(CallOp, value.op), self.staged.group_of(value))
            if (found := inner.find(sums, (stage_of(value.op), None))) is not None:
                groups[sums] = found
            else:
                singles.append(value)
                values += inner.whole(value, stage_of(value.op))
        return singles, list(groups), [*values, *(v for found in groups.values() for v in found)]

    def _replica(self, block: Block, layout: Layout, number: int) -> Replica:
        devices = [self._group(layout, stage, number) for stage in range(layout.pp)]
        replica = Replica(self.staged, block, devices, layout.microbatches)
        for argument, stages in self.places.items():
            replica.first_stage[argument] = stages[0]
        return replica

    def _group(self, layout: Layout, stage: int, number: int) -> list[int]:
        """The devices of one replica of one stage that the program is written for."""
        return layout.group(stage, number)[: self.staged.ranks]

    # --- arguments and results -------------------------------------------------------------------------------------

    def _arguments(self) -> list[DictionaryAttr]:
        """Makes the arguments, and returns their attributes."""
        layout, staged, places = self.layout, self.staged, self.places
        types: list[Attribute] = []
        ports: list[DictionaryAttr] = []
        for argument, stages in places.items():
            known = staged.argument_attributes[argument.index]
            own = self._ports(argument, known, self.tensors[argument])
            for stage in stages:
                for number in range(self.count):
                    at = number * layout.tp
                    types += self._types(argument, layout, self._group(layout, stage, number))
                    ports += own[at : at + staged.ranks]
        for call, held in staged.held.items():
            for number in range(self.count):
                types += [
                    staged.moved(t, d) for t, d in zip(held, self._group(layout, stage_of(call), number), strict=True)
                ]
        ports += [DictionaryAttr({"dist.role": StringAttr("parameter")})] * (len(types) - len(ports))
        self.block = Block(arg_types=types)
        self.replicas = [self._replica(self.block, layout, number) for number in range(self.count)]
        given, at, ranks = self.block.args, 0, staged.ranks
        for argument, stages in places.items():
            name_alike(given[at : at + len(stages) * self.count * ranks], argument.name_hint)
            for stage in stages:
                for replica in self.replicas:
                    replica.held[argument, (stage, None)] = list(given[at : at + ranks])
                    at += ranks
        return ports

    def _types(self, value: SSAValue, layout: Layout, devices: Sequence[int]) -> list[Attribute]:
        """What devices hold of a value that the entry is given, or of all that is one with it."""
        if value in self.staged.together:
            return [self.staged.tuple_type(value, device) for device in devices]
        types = local_types(self.tensors[value], layout)
        return [types[device] for device in devices]

    def _ports(self, argument: BlockArgument, known: Mapping[str, Attribute], tensor: Tensor) -> list[DictionaryAttr]:
        """Attributes of the entry arguments that are the parts of one argument on one stage, replica by replica. Equal ones
        are one; those of what all replicas hold whole are made once for all plans. A program that is not to run does not say which
        parts they are."""
        layout, ports = self.layout, self.staged.ports
        if not self.staged.to_run:
            if argument not in ports:
                ports[argument] = [DictionaryAttr(dict(known))] * layout.tp
            return ports[argument] * layout.dp
        ranks = 1 if tensor.tensor == REPLICATED else layout.tp
        if isinstance(tensor.batch, Sharded):
            of_replicas = [
                [
                    DictionaryAttr({**known, "dist.part": part_of(tensor, layout, replica, rank)})
                    for rank in range(ranks)
                ]
                for replica in range(layout.dp)
            ]
            return [port for of_ranks in of_replicas for port in of_ranks * (layout.tp // ranks)]
        if argument not in ports:
            parts = [part_of(tensor, layout, 0, rank) for rank in range(ranks)]
            ports[argument] = [DictionaryAttr({**known, "dist.part": part}) for part in parts] * (layout.tp // ranks)
        return ports[argument] * layout.dp

    def _returns(self) -> ReturnOp:
        return cast(ReturnOp, self.staged.entry.body.block.last_op)

    def _finish(self, argument_ports: list[DictionaryAttr]) -> FuncOp:
        returned: list[SSAValue] = []
        ports: list[dict[str, Attribute]] = []
        for value, known in zip(self._returns().operands, result_attributes(self.staged.entry), strict=True):
            name = text(known, "dist.name", "")
            tensor = self._returned(value, name)
            for stage, number in self._holders(value, name):
                for rank, held in self._addends(value, tensor, stage, number):
                    returned.append(held)
                    part = {"dist.part": part_of(tensor, self.layout, number, rank)} if self.staged.to_run else {}
                    ports.append({**known, **part})
        self.block.add_op(ReturnOp.create(operands=returned))
        types = list(self.block.arg_types), [v.type for v in returned]
        new = FuncOp(self.staged.entry.sym_name.data, types, Region(self.block))
        new.arg_attrs = ArrayAttr(argument_ports)
        new.res_attrs = ArrayAttr([DictionaryAttr(d) for d in ports])
        self.staged.place(new)
        self.built.append(new)
        layout = self.layout
        self.staged.module.attributes["dist.devices"] = IntegerAttr(layout.devices, i64)
        self.staged.module.attributes["dist.axes"] = AxesAttr((("pp", layout.pp), ("dp", layout.dp), ("tp", layout.tp)))
        return new

    def _returned(self, value: SSAValue, name: str) -> Tensor:
        """What a result is over replicas and tensor ranks: as it is held, products multiplied out; over tensor ranks as the argument that it
        updates, of the same name."""
        batch, tensor = self.tensors[value].batch, self.tensors[value].tensor
        if (updated := self._by_name.get(name)) is not None:
            tensor = self.tensors[updated].tensor
        if batch == PRODUCT:
            self._reduce(value)
        if isinstance(batch, Partial) and (value in self._reduced or self.layout.dp == 1):
            batch = REPLICATED
        return Tensor(batch, REPLICATED if tensor == PRODUCT else tensor, self.tensors[value].type)

    def _addends(self, value: SSAValue, returned: Tensor, stage: int, number: int) -> list[tuple[int, SSAValue]]:
        """What a replica returns, by rank: of a sum over replicas or tensor ranks that the others hold too, only the first
        adds."""
        replica = self.replicas[number]
        values = replica.converted(replica.whole(value, stage), self.tensors[value].tensor, returned.tensor, stage)
        once = SUM in (returned.batch, returned.tensor)
        if once and number > 0 and returned.batch == REPLICATED:
            return []
        return list(enumerate(values[:1] if once and returned.tensor == REPLICATED else values))

    def _holders(self, value: SSAValue, name: str) -> list[tuple[int, int]]:
        """Stages and replicas that return a value: of an update, those that have the argument."""
        if isinstance(value, OpResult):
            updated = self._by_name.get(name)
            stages = [stage_of(value.op)] if updated is None else self.places[updated]
        else:
            stages = [stage for held, (stage, _) in self.replicas[0].held if held is value]
        return [(stage, number) for stage in dict.fromkeys(stages) for number in range(self.count)]

    def _replicas_of(self, stage: int, rank: int) -> Attribute:
        """The devices of all replicas that are one rank of a stage."""
        if (known := self._participants.get((stage, rank))) is None:
            devices = [self.layout.group(stage, replica)[rank] for replica in range(self.layout.dp)]
            known = self._participants[stage, rank] = DenseArrayBase.from_list(i64, devices)
        return known

    def _reduce(self, value: SSAValue) -> None:
        """Makes the addends of all replicas one value on each of them."""
        state = self.tensors[value].batch
        if value in self._reduced or not isinstance(state, Partial):
            return
        assert isinstance(value, OpResult)
        stage = stage_of(value.op)
        addends = [replica.whole(value, stage) for replica in self.replicas]
        self._reduced.add(value)
        if self.layout.dp == 1:
            return
        whole: list[list[SSAValue]] = []
        for rank, of_rank in enumerate(zip(*addends, strict=True)):
            op = AllReduceOp.create(
                operands=of_rank,
                result_types=[v.type for v in of_rank],
                properties={"reduction": ReductionAttr(state.reduction)},
                attributes={PARTICIPANTS: self._replicas_of(stage, rank)} if self.alone else {},
                location=UNKNOWN_LOC,
            )
            self.block.add_op(op)
            name_alike(op.results, value.name_hint)
            whole.append(list(op.results))
        for replica, values in zip(self.replicas, zip(*whole, strict=True), strict=True):
            replica.held[value, (stage, None)] = list(values)
