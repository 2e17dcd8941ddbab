"""Labels of operations for readers. In goes a function; out comes for each operation the name of its first result as
the text shows it (`%h`, `%h_1`), else the operation's name. The hint alone will not do: a parser drops the number
that tells `%h_1` from `%h`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from xdsl.dialects import func
from xdsl.ir import Operation

from distir.dialects.dist import CallOp


def labels_of(function: func.FuncOp) -> Mapping[Operation, str]:
    """Per operation of the body: hints are numbered in the order in which a printer meets them."""
    block = function.body.block
    met = Counter[str]()
    labels: dict[Operation, str] = {}
    for argument in block.args:
        if argument.name_hint:
            met[argument.name_hint] += 1
    for op in block.ops:
        labels[op] = op.name
        for number, value in enumerate(op.results):
            if (hint := value.name_hint) is None:
                continue
            if number == 0:
                labels[op] = f"{hint}_{met[hint]}" if met[hint] else hint
            met[hint] += 1
    return labels


def callee_name(op: Operation) -> str:
    """The function that a call runs."""
    if isinstance(op, CallOp):
        return op.callee_name
    assert isinstance(op, func.CallOp)
    return op.callee.string_value()


def call_text(op: Operation, label: str) -> str:
    """A call on a path: `layer`, or `layer:h_1` where its result has a name."""
    return callee_name(op) if label == op.name else f"{callee_name(op)}:{label}"
