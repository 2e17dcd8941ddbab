"""In goes the program of one rank, out comes which results of its functions are on their way when they return: those of messages on a stream of
their own, and what is made of them there. Who calls such a function waits where the result comes back from the stream."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from distir.dialects import rank
from distir.dialects.aten import AtenOperation
from distir.dialects.dist import AccumulateOp, CastOp, ConcatOp, PackOp, ScaleOp, SliceOp, UnpackOp


class LateResults:
    """Asked for one function after the other; a function is read once."""

    def __init__(self, module: ModuleOp) -> None:
        self._functions = {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp)}
        self._known: dict[str, frozenset[int]] = {}

    def of(self, symbol: str) -> frozenset[int]:
        """The places of these results, of a function of the module."""
        if symbol not in self._known:
            self._known[symbol] = frozenset()
            if symbol in self._functions:
                self._known[symbol] = self._read(self._functions[symbol])
        return self._known[symbol]

    def _read(self, function: func.FuncOp) -> frozenset[int]:
        late: set[SSAValue] = set()
        for op in function.body.block.ops:
            match op:
                case func.ReturnOp():
                    return frozenset(i for i, value in enumerate(op.operands) if value in late)
                case func.CallOp():
                    late.update(op.results[i] for i in self.of(op.callee.string_value()))
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
