"""Runs an annotated program on one rank. In go whole tensors for the arguments; out come whole results. In between,
every value is a DTensor, redistributed to the states that an operation's strategy needs.

The operation runs on this rank's shards, by the rule that `shardcombine-annotate` found, so DTensor needs no rule of
its own for it. Attributes that carry sizes have a shard's, as `apply-sharding` writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, cast

import torch
from torch.distributed.tensor import DTensor
from xdsl.dialects.builtin import ModuleOp, NoneType, TensorType, f32
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from distir.backends.dtensor.conversions import Conversions
from distir.backends.dtensor.plan import DTensorPlan
from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.operators import compile_operator
from distir.backends.torch.program import Program as TorchProgram
from distir.dialects.errors import DistirError
from distir.interpreters.walk import values_read
from distir.passes.distribution.conversions import Insert
from distir.passes.distribution.lower import cut_factors
from distir.passes.distribution.mesh import AxisStates
from distir.passes.distribution.options import rule_of
from distir.passes.distribution.positions import positions_of, starts_of
from distir.passes.distribution.sizes import changes_of, local_constants, local_properties
from distir.passes.structure import copied, functions


@dataclass
class Value:
    """A value as it was produced, and in the states in which it has been needed since. What is no tensor (an absent
    operand) is `other`."""

    states: AxisStates
    held: dict[AxisStates, DTensor] = field(default_factory=dict[AxisStates, DTensor])
    other: Any = None

    def on(self, conversions: Conversions, states: AxisStates) -> Any:
        """This rank's part of the value in these states."""
        if not self.held:
            return self.other
        if states not in self.held:
            self.held[states] = conversions.convert(self.held[self.states], self.states, states)
        return self.held[states].to_local()


class Program:
    """Runs functions of a module by its plan."""

    def __init__(self, module: ModuleOp, plan: DTensorPlan, conversions: Conversions, types: ElementTypes) -> None:
        self.plan, self.conversions, self.types = plan, conversions, types
        self._functions = functions(module)
        self._device = torch.device(conversions.devices.device_type)
        self._rank: int = conversions.devices.get_rank()

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The results of the entry, whole, from whole arguments, which every rank has."""
        distributed = [
            self._value(whole, self.plan.arguments[argument], self.conversions.distribute)
            for whole, argument in zip(arguments, self.plan.entry.body.block.args, strict=True)
        ]
        return [value.on(self.conversions, self.conversions.whole) for value in self._run(self.plan.entry, distributed)]

    def _value(self, tensor: Any, states: AxisStates, place: Any) -> Value:
        if not isinstance(tensor, torch.Tensor):
            return Value(states, other=tensor)
        return Value(states, {states: place(tensor, states)})

    def _run(self, function: FuncOp, arguments: Sequence[Value]) -> list[Value]:
        values: dict[SSAValue, Value] = dict(zip(function.body.block.args, arguments, strict=True))
        last = {value: op for op in function.body.block.ops for value in values_read(op)}
        for op in function.body.block.ops:
            read = values_read(op)
            operands = [values[value] for value in read]
            if isinstance(op, ReturnOp):
                return operands
            results = self._call(op, operands) if isinstance(op, CallOp) else self._operation(op, operands)
            values.update(zip(op.results, results, strict=True))
            for value in read:
                if last[value] is op:
                    values.pop(value, None)
        raise DistirError(f"@{function.sym_name.data} does not return")

    def _call(self, op: CallOp, operands: Sequence[Value]) -> list[Value]:
        callee = self._functions[op.callee.string_value()]
        passed = [
            self._value(value.on(self.conversions, states), states, self.conversions.from_local)
            for value, states in (
                (v, self.plan.arguments[a]) for v, a in zip(operands, callee.body.block.args, strict=True)
            )
        ]
        return self._run(callee, passed)

    def _operation(self, op: Operation, operands: Sequence[Value]) -> list[Value]:
        try:
            return self._on_shards(op, operands)
        except DistirError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise DistirError(f"{op.name}: {reason}") from error

    def _on_shards(self, op: Operation, operands: Sequence[Value]) -> list[Value]:
        mesh = self.conversions.mesh
        options = self.plan.options.get(op)
        if options is None:  # a constant: whole everywhere
            produced = compile_operator(op, self.types, self._device)([])
            return [self._value(p, self.conversions.whole, self.conversions.from_local) for p in produced]
        starts = starts_of(op, options, mesh, self._rank)
        changes = changes_of(rule_of(op), cut_factors(options, mesh), starts)
        rewritten = {
            i: compile_operator(constant, self.types, self._device)([])[0]
            for i, constant in local_constants(op, changes).items()
        }
        read = values_read(op)
        needed = [tuple(option.operands[i] for option in options) for i in range(len(read))]
        given = [tuple(option.results[i] for option in options) for i in range(len(op.results))]
        local = [
            rewritten[i] if i in rewritten else value.on(self.conversions, states)
            for i, (value, states) in enumerate(zip(operands, needed, strict=True))
        ]
        positions, whole = positions_of(op, options, mesh), local
        held = positions.range(self._rank) if positions is not None else (0, 0, 0)
        if positions is not None:
            local = self._locally(whole, lambda values, insert: positions.before(values, held, insert))
        types = [value.type if i in rewritten else self._local(value, needed[i]) for i, value in enumerate(read)]
        arguments = Block(arg_types=types).args
        shard = type(op).create(
            operands=arguments[: len(op.operands)],
            result_types=[self._local(result, states) for result, states in zip(op.results, given, strict=True)],
            properties=local_properties(op, changes),
            regions=[copied(region, dict(zip(read, arguments, strict=True))) for region in op.regions],
        )
        produced = list(compile_operator(shard, self.types, self._device)(local))
        produced += [None] * (len(op.results) - len(produced))
        for i, tensor in enumerate(produced[: len(op.results)]):
            if positions is not None:
                (tensor,) = self._locally(
                    [tensor, *whole],
                    lambda values, insert: [positions.after(values[0], values[1:], held, insert)],
                )
            shards = prod(size for option, size in zip(options, mesh.sizes, strict=True) if i in option.means)
            produced[i] = tensor / shards if shards > 1 else tensor
        return [
            self._value(tensor, states, self.conversions.from_local)
            for tensor, states in zip(produced, given, strict=False)
        ]

    def _locally(
        self, tensors: Sequence[Any], made: Callable[[Sequence[SSAValue], Insert], Sequence[SSAValue]]
    ) -> list[Any]:
        """What local operations make of tensors, by the torch backend."""
        absent = NoneType()
        block = Block(arg_types=[absent if each is None else TensorType(f32, each.shape) for each in tensors])
        results = made(block.args, block.add_op)
        block.add_op(ReturnOp(*results))
        function = FuncOp("local", (block.arg_types, [result.type for result in results]), Region(block))
        return list(TorchProgram(ModuleOp([function]), self.types, self._device).function("local")(list(tensors)))

    def _local(self, value: SSAValue, states: AxisStates) -> Attribute:
        if not isinstance(value.type, TensorType):
            return value.type
        type_ = cast(TensorType[Any], value.type)
        return TensorType(type_.element_type, self.conversions.mesh.local_shape(type_.get_shape(), states))
