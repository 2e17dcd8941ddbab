"""Calls of ATen operators, from torch's own samples for its tests: each as an operation of the `aten` dialect with its operands.

`recorded` runs the samples of torch's table of operators and keeps what was called on the way (`op_db` names functions; what they are
made of, gradients included, is what programs have). `operation` makes an operation of a call."""

from __future__ import annotations

import signal
import sys
import types
import unittest
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from xdsl.ir import Operation

from distir.dialects.aten import OPERATORS
from distir.dialects.aten.schemas import Schema
from distir.frontends.pytorch.graph import GraphImporter
from distir.frontends.pytorch.remembering import TracedFunction
from distir.interpreters.aten.calls import overload, tensor_type
from distir.interpreters.aten.reference import array_of

LARGEST = 20_000
"""Elements of a tensor of a call that is kept."""


@dataclass(frozen=True)
class Call:
    """An overload with its arguments."""

    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def name(self) -> str:
        overload = self.function._overloadname
        return self.function._schema.name.replace("::", ".") + ("" if overload == "default" else f".{overload}")

    @property
    def form(self) -> str:
        """Equal for calls on equal shapes with equal numbers."""

        def text(value: Any) -> str:
            return f"{value.dtype}{tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)

        return str(tree_map(text, (self.name, self.args, dict(self.kwargs))))


def drawn(schema: Schema) -> Iterator[Call]:
    """Calls on small tensors of zeros, with what the schema requires; most of them are refused, and some crash."""
    required = [a for a in schema.arguments if a.default is None and not a.optional and not a.is_placement]
    shapes, dtypes = (
        [(2, 2), (2,), (1, 2, 2), (1, 2, 4, 4), (1, 1, 4, 4, 4), ()],
        [torch.float32, torch.int64, torch.bool],
    )
    for dtype, shape, number, length in product(dtypes, shapes, (1, 0), (1, 2, 3)):
        one = {
            **{"int": number, "float": 1.0, "bool": False, "number": 1, "Scalar": 1, "str": "none"},
            **{"SymInt": number, "ScalarType": torch.float32},
        }
        values: dict[str, Any] = {}
        for argument in required:
            kind = argument.type.removesuffix("[]")
            several = length if argument.is_list else 1
            made = [torch.zeros(shape, dtype=dtype) if kind == "Tensor" else one.get(kind) for _ in range(several)]
            values[argument.name] = made if argument.is_list else made[0]
        positional = [values[a.name] for a in required if not a.keyword_only]
        yield Call(overload(schema), tuple(positional), {a.name: values[a.name] for a in required if a.keyword_only})


def operation(call: Call) -> tuple[Operation, list[np.ndarray[Any, Any]]]:
    """The call as an operation on arguments of a block, and its operands. Raises what the operator raises."""
    leaves, _ = tree_flatten((call.args, dict(call.kwargs)))
    graph = fx.Graph()
    importer = GraphImporter(
        TracedFunction("call", [], lambda tensors: {}, lambda tensors: {}), fx.GraphModule({}, graph)
    )
    nodes: dict[int, fx.Node] = {}
    operands: dict[Any, np.ndarray[Any, Any]] = {}
    for tensor in leaves:
        if isinstance(tensor, torch.Tensor) and id(tensor) not in nodes:
            node = nodes[id(tensor)] = graph.placeholder(f"x{len(nodes)}")
            node.meta["val"] = tensor
            value = importer.block.insert_arg(tensor_type(tensor), len(importer.block.args))
            importer.values[node], operands[value] = (
                value,
                array_of(tensor.detach().contiguous()),
            )

    def as_node(value: Any) -> Any:
        return nodes[id(value)] if isinstance(value, torch.Tensor) else value

    node = graph.call_function(call.function, *tree_map(as_node, (call.args, dict(call.kwargs))))
    with torch.no_grad():
        node.meta["val"] = call.function(*call.args, **call.kwargs)
    op = importer._operation(node, OPERATORS[call.name].schema)  # pyright: ignore[reportPrivateUsage]
    importer.block.add_op(op)
    return op, [operands[value] for value in op.operands]


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = Call(func, args, kwargs or {})
        if call.name in OPERATORS and not OPERATORS[call.name].schema.is_random:
            self.calls.append(
                Call(
                    func,
                    *tree_map(lambda v: v.detach().clone() if isinstance(v, torch.Tensor) else v, (args, kwargs or {})),
                )
            )
        return func(*args, **(kwargs or {}))


def _table() -> Sequence[Any]:
    if "expecttest" not in sys.modules:  # torch's table imports it for a class of tests that is not used here
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # pyright: ignore[reportAttributeAccessIssue]
        sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


@contextmanager
def limited(seconds: float) -> Generator[None]:
    """Raises TimeoutError in what takes longer."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def recorded(per_function: int, per_overload: int, seconds: float = 2.0) -> list[Call]:
    """Calls of all operators that torch has samples of, so many of a function's samples and of each overload at most."""
    kept: dict[str, dict[str, Call]] = {}
    for entry in _table():
        dtype = (
            torch.float64
            if torch.float64 in entry.dtypes
            else next((d for d in (torch.int64, torch.bool) if d in entry.dtypes), None)
        )
        if dtype is None:
            continue
        with warnings.catch_warnings(), _Recorder() as recorder:
            warnings.simplefilter("ignore")
            try:
                with limited(seconds):
                    gradient = entry.supports_autograd and dtype.is_floating_point
                    for number, sample in enumerate(entry.sample_inputs("cpu", dtype, requires_grad=gradient)):
                        if number >= per_function:
                            break
                        results, _ = tree_flatten(entry.op(sample.input, *sample.args, **sample.kwargs))
                        sums = [r.sum() for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
                        if sums:
                            torch.autograd.backward(sums)
            except Exception:
                pass
        for call in recorder.calls:
            leaves, _ = tree_flatten((call.args, dict(call.kwargs)))
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            if tensors and all(
                0 < t.numel() <= LARGEST and not t.is_complex() and t.layout == torch.strided for t in tensors
            ):
                of_name = kept.setdefault(call.name, {})
                if len(of_name) < per_overload:
                    of_name.setdefault(call.form, call)
    return [call for _, of_name in sorted(kept.items()) for call in of_name.values()]
