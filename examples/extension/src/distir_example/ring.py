"""What the ring exchange means, one `@impl` in each domain: arrays, devices, seconds, shards; and what one rank does of it."""

from __future__ import annotations

from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Operation

from distir.dialects import rank
from distir.dialects.dist.attributes import placed
from distir.interpreters.costs import CostWalk
from distir.interpreters.placement import place_distinct
from distir.interpreters.work import type_bytes
from distir.passes.project_to_rank import FunctionView
from distir_example.dialect import RingExchangeOp


@register_impls
class RingArrays(InterpreterFunctions):
    """Values are arrays, one per participant."""

    @impl(RingExchangeOp)
    def ring_exchange(self, interpreter: Interpreter, op: RingExchangeOp, args: PythonValues) -> PythonValues:
        return (args[-1], *args[:-1])


class RingShards(RingArrays):
    """Values are shards of the sequential program's values: they move in the same way."""


@register_impls
class RingPlaces(InterpreterFunctions):
    """Values are devices: each result is where the operand of its participant is."""

    @impl(RingExchangeOp)
    def ring_exchange(self, interpreter: Interpreter, op: RingExchangeOp, args: PythonValues) -> PythonValues:
        return place_distinct(op, args)


@register_impls
class RingCosts(InterpreterFunctions):
    """Arguments are the machine's devices; the value is what the time is called and how long it is: that of the slowest message."""

    @impl(RingExchangeOp)
    def ring_exchange(self, interpreter: Interpreter, op: RingExchangeOp, args: PythonValues) -> PythonValues:
        assert isinstance(interpreter, CostWalk)
        assert interpreter.model is not None
        bytes = type_bytes(op.operands[0].type)
        messages = [interpreter.model.send_seconds(bytes, args[i - 1], args[i]) for i in range(len(args))]
        return (("ring_exchange", max(messages)),)


def lower(op: RingExchangeOp, view: FunctionView) -> Operation:
    """This rank's side: of all participants' values, one after the other, those that begin where its neighbour's do."""
    i, group = view.index(op.operands), view.ranks(op.operands)
    result = placed(op.results[i].type, None)
    rows: int = result.get_shape()[0]
    return rank.ExchangeOp(view.values[op.operands[i]], 0, (i - 1) % len(group) * rows, group, result)
