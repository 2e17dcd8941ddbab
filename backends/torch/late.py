"""In goes the program of one rank, out comes which arguments and results of its functions are on their way when they are called and return: those of messages on a
stream of their own, and what is made of them there. Who has them waits where they come back from the stream."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from distir.dialects import rank
from distir.dialects.aten import AtenOperation
from distir.dialects.dist import AccumulateOp, CastOp, ConcatOp, PackOp, ScaleOp, SliceOp, UnpackOp


class LateValues:
    """Asked for one function after the other; the results of a function are found once."""

    def __init__(self, module: ModuleOp) -> None:
        self._functions = {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp)}
        self.called = {op.callee.string_value() for op in module.walk() if isinstance(op, func.CallOp)}
        """Functions that others call. What others return is there."""
        self._results: dict[str, frozenset[int]] = {}
        self._arguments: dict[str, frozenset[int]] = {}
        for symbol in self._functions:
            if symbol not in self.called:
                self._give(symbol)

    def results(self, symbol: str) -> frozenset[int]:
        """The places of the results of a function that are on their way when it returns."""
        if symbol not in self._results:
            self._results[symbol] = frozenset()
            if symbol in self._functions:
                self._results[symbol] = self._returned(self._functions[symbol])
        return self._results[symbol]

    def arguments(self, symbol: str) -> frozenset[int]:
        """The places of the arguments of a function that may be on their way when it is called."""
        return self._arguments.get(symbol, frozenset())

    def is_given(self, value: SSAValue) -> bool:
        """Whether a value may be on its way when it is given to a function: what a collective on a stream makes. What is made of that is waited for: sums over microbatches
        would be a chain of all of them."""
        if isinstance(value, BlockArgument):
            function = value.block.parent_op()
            assert isinstance(function, func.FuncOp)
            return value.index in self.arguments(function.sym_name.data)
        return isinstance(value.owner, rank.GroupOp) and rank.STREAM in value.owner.attributes

    def _give(self, symbol: str) -> None:
        """Enters what a function gives to those that it calls, and these in turn."""
        for op in self._functions[symbol].body.block.ops:
            if isinstance(op, func.CallOp) and (callee := op.callee.string_value()) in self._functions:
                before = self._arguments.get(callee)
                given = frozenset(i for i, value in enumerate(op.operands) if self.is_given(value))
                self._arguments[callee] = given | (before or frozenset())
                if self._arguments[callee] != before:
                    self._give(callee)

    def _returned(self, function: func.FuncOp) -> frozenset[int]:
        late: set[SSAValue] = {function.body.block.args[i] for i in self.arguments(function.sym_name.data)}
        for op in function.body.block.ops:
            match op:
                case func.ReturnOp():
                    return frozenset(i for i, value in enumerate(op.operands) if value in late)
                case func.CallOp():
                    late.update(op.results[i] for i in self.results(op.callee.string_value()))
                case rank.GroupOp() | rank.RecvOp():
                    late.update(op.results if rank.STREAM in op.attributes else ())
                case _:
                    if may_be_late(op) and not late.isdisjoint(op.operands):
                        late.update(op.results)
        return frozenset()


def may_be_late(op: Operation) -> bool:
    """Whether an operation on a stream of its own may be done only when its result is waited for."""
    if rank.STREAM not in op.attributes:
        return False
    if isinstance(op, UnpackOp):
        return True
    if isinstance(op, AtenOperation):
        return len(op.results) == 1 and not op.schema.results[0].endswith("[]")
    return isinstance(op, AccumulateOp | CastOp | ConcatOp | PackOp | ScaleOp | SliceOp)
