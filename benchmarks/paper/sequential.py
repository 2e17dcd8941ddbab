"""The paper's models before they are distributed, level 1 programs, and what our own transform makes of them.

    module(Mlp(layers=16, width=8192), batch=1024)

GPT-2 is that of `benchmarks/gpt2_175b.py`. Layers of the MLP are `relu(x @ w)` without bias, in f16, all of one width; the
operations of its training step and their order are those of the original's `examples/mlp.py` with its optimizer. As there, the
gradient of the input is computed and is an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, TensorType, f16
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, Region, SSAValue

from benchmarks.gpt2_175b import SEQUENCE, level1
from benchmarks.paper import gpt2, grid, mlp
from benchmarks.paper.mlp_stages import Configuration, Mlp
from benchmarks.paper.points import MACHINE, Outcome, Point
from benchmarks.paper.program import named
from distir.dialects.grad import LossGradOp, LossOp, MatmulGradOp, ReluGradOp, SgdOp
from distir.dialects.onnx import OPERATORS
from distir.frontends.shapes import bind_arguments
from distir.interpreters.entry import entry_function
from distir.passes.expand_ranks import ExpandRanksPass
from distir.passes.search import configurations, search

SCHEDULE = "1f1b"
NO_LIMIT = 1 << 62
"""Bytes: that a plan needs too much is said by the table, as of the paper's programs."""


class Transform:
    """Programs of `dtp-parallelize` under the paper's cost model, as `distir search` makes them."""

    def __init__(self, model: str, layers: int | None = None):
        """The paper's model, or as many layers of it."""
        self.model = model
        if model in gpt2.MODELS:
            of_gpt2 = gpt2.MODELS[model]
            bind = _open_batch(level1(layers or of_gpt2.layers, of_gpt2.width, of_gpt2.heads))
        else:
            of_mlp = mlp.MODELS[model]
            of_mlp = of_mlp if layers is None else replace(of_mlp, layers=layers)
            bind = partial(module, of_mlp)
        self._search = search.Search(bind, MACHINE, "distir", NO_LIMIT, restrict="dp=batch,tp=model")

    def program(self, c: Configuration) -> ModuleOp:
        """The level-3 program. Devices are numbered as ours are: (p * D + d) * T + t."""
        module = self._search.program(self._named(c))
        ExpandRanksPass().apply(Context(), module)
        return module

    def outcomes(self, points: Sequence[Point]) -> Iterator[Outcome]:
        """What their simulations say: those that differ in the batch alone are one program, built once."""
        by_configuration = {self._named(point.configuration): point for point in points}
        for found in self._search.outcomes(list(by_configuration)):
            assert found.figures is not None, found.dropped
            figures = found.figures
            yield Outcome(by_configuration[found.configuration], figures.latency_seconds, figures.peak_memory_bytes)

    def grid(self, batches: Iterable[int]) -> dict[Configuration, Outcome]:
        """Of the paper's configurations at these batches, those that may fit."""
        asked = [c for batch in batches for c in grid.configurations(batch) if grid.may_fit(self.model, c)]
        found = self.outcomes([Point(self.model, c, 0.0, 0, "grid") for c in asked])
        return {outcome.point.configuration: outcome for outcome in found}

    @staticmethod
    def _named(c: Configuration) -> configurations.Configuration:
        return configurations.Configuration(c.batch, c.D, c.T, c.P, c.K, SCHEDULE)


def evaluator(batches: Mapping[str, Iterable[int]]) -> grid.Evaluate:
    """Simulates points of models, of each of which all batches are known beforehand: all at once, when the first is asked for."""

    @cache
    def found(model: str) -> dict[Configuration, Outcome]:
        return Transform(model).grid(sorted(batches[model]))

    return lambda points: (found(point.model)[point.configuration] for point in points)


def _open_batch(model: ModuleOp) -> Callable[[int], ModuleOp]:
    """GPT-2 at a batch size."""

    def bind(batch: int) -> ModuleOp:
        bound = model.clone()
        bind_arguments(entry_function(bound), {"input1": (batch, 1, SEQUENCE)})
        return bound

    return bind


def module(model: Mlp, batch: int) -> ModuleOp:
    """The training step of a batch."""
    rows, square = TensorType(f16, [batch, model.width]), TensorType(f16, [model.width, model.width])
    names = [named("parameter", f"w{i}") for i in range(model.layers)]
    arguments = [*names, named("input", "x"), named("label", "z"), named("input", "n")]
    block = Block(arg_types=[*[square] * model.layers, rows, rows, TensorType(f16, [])])
    *weights, x, label, samples = block.args

    def add(op: Operation) -> SSAValue:
        block.add_op(op)
        return op.results[0]

    kept: list[tuple[SSAValue, SSAValue]] = []
    for w in weights:
        y = add(OPERATORS["MatMul"].create(operands=[x, w], result_types=[rows]))
        kept.append((x, y))
        x = add(OPERATORS["Relu"].create(operands=[y], result_types=[rows]))
    loss = add(LossOp.create(operands=[x, label, samples], result_types=[rows]))
    dy = add(LossGradOp.create(operands=[x, label, samples], result_types=[rows]))
    gradients: list[SSAValue] = []
    for w, (x, y) in reversed(list(zip(weights, kept, strict=True))):
        dy = add(ReluGradOp.create(operands=[y, dy], result_types=[rows]))
        both = MatmulGradOp.create(operands=[x, w, dy], result_types=[rows, square])
        dy = add(both)
        gradients.insert(0, both.dw)
    updated = [add(SgdOp(w, g, 0.0)) for w, g in zip(weights, gradients, strict=True)]
    block.add_op(ReturnOp(*updated, loss, dy))
    results = [*names, named("output", "loss"), named("output", "dx")]
    types = (block.arg_types, [v.type for v in (*updated, loss, dy)])
    entry = FuncOp("main", types, Region(block))
    entry.arg_attrs, entry.res_attrs = ArrayAttr(arguments), ArrayAttr(results)
    return ModuleOp([entry])
