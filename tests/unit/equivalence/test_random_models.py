"""For all programs: what distributes them leaves what they compute."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, Builtin, DictionaryAttr, ModuleOp
from xdsl.dialects.func import Func
from xdsl.ir import Operation
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.errors import DistirError
from distir.dialects.onnx import Onnx
from distir.dialects.sharding import Choice, MeshOp, Partial, Sharded, ShardingAttr, State, StrategyAttr
from distir.interpreters.entry import entry_function
from distir.interpreters.module_check import check_module
from distir.interpreters.proof import prove
from distir.interpreters.reference import run, run_ranks
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.options import Option, options
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.project_to_rank import project
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass
from distir.passes.structure import argument_attributes, shape_of
from tests.unit.random_models import BATCH, EXTENTS, Program, models

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Dist, Onnx):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    check_module(module)
    return module


def assert_agree(expected: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-10 * max(1.0, np.abs(value).max()), err_msg=name)


DEGREES = st.fixed_dictionaries(
    {
        "dp": st.sampled_from([1, 2, 3]),
        "tp": st.sampled_from([1, 2, 3]),
        "pp": st.sampled_from([1, 2, 3]),
        "microbatches": st.sampled_from([1, 2, 4]),
        "schedule": st.sampled_from(["gpipe", "1f1b"]),
    }
).filter(lambda d: BATCH % (d["dp"] * d["microbatches"]) == 0)


def check(program: Program, degrees: dict[str, object], seen: Counter[str]) -> None:
    module = parse(program.text)
    inputs = program.draw_inputs()
    expected = run(module, inputs, dtype=np.float64)
    try:
        DtpParallelizePass(**degrees).apply(Context(), module)
    except DistirError as refusal:
        seen[str(refusal)[:40]] += 1
        return
    seen["distributed"] += 1
    module.verify()
    check_module(module)
    assert_agree(expected, run(module, inputs, dtype=np.float64))
    devices = module.attributes["dist.devices"].value.data  # type: ignore[attr-defined]
    assert_agree(expected, run_ranks([project(module, r) for r in range(devices)], inputs, dtype=np.float64))


def run_examples(count: int, largest: int = 9) -> Counter[str]:
    seen: Counter[str] = Counter()

    @settings(max_examples=count, **QUIET)
    @given(models(largest), DEGREES)
    def examples(program: Program, degrees: dict[str, object]) -> None:
        check(program, degrees, seen)

    examples()
    return seen


def test_distributed_models_compute_what_the_models_compute():
    seen = run_examples(15)
    assert seen["distributed"] > sum(seen.values()) / 2, seen


SUMS = """
func.func @main(%x: tensor<12x6xf32> {dist.name = "x", dist.role = "input"},
                %w0: tensor<6x12xf32> {dist.name = "w0", dist.role = "parameter"},
                %w1: tensor<12x6xf32> {dist.name = "w1", dist.role = "parameter"})
    -> (tensor<1x6xf32> {dist.name = "sum", dist.role = "output"},
        tensor<1x6xf32> {dist.name = "product", dist.role = "output"},
        tensor<6x6xf32> {dist.name = "weights", dist.role = "output"}) {
  %rows = onnx.Constant dense<[0]> : tensor<1xi64>
  %sum = "onnx.ReduceSum"(%x, %rows) <{keepdims = 1 : si64}> : (tensor<12x6xf32>, tensor<1xi64>) -> tensor<1x6xf32>
  %h = "onnx.MatMul"(%x, %w0) : (tensor<12x6xf32>, tensor<6x12xf32>) -> tensor<12x12xf32>
  %y = "onnx.MatMul"(%h, %w1) : (tensor<12x12xf32>, tensor<12x6xf32>) -> tensor<12x6xf32>
  %product = "onnx.ReduceProd"(%y, %rows) <{keepdims = 1 : si64}> : (tensor<12x6xf32>, tensor<1xi64>) -> tensor<1x6xf32>
  %weights = "onnx.MatMul"(%w0, %w1) : (tensor<6x12xf32>, tensor<12x6xf32>) -> tensor<6x6xf32>
  func.return %sum, %product, %weights : tensor<1x6xf32>, tensor<1x6xf32>, tensor<6x6xf32>
}
"""
"""A sum over the batch, which tensor ranks hold whole; a product over it; a sum over tensor ranks, which replicas hold whole."""


@pytest.mark.parametrize(("dp", "tp", "microbatches"), [(1, 2, 1), (2, 1, 1), (2, 2, 1), (3, 2, 2)])
def test_addends_that_others_hold_too_count_once(dp: int, tp: int, microbatches: int):
    program = Program(SUMS, {"x": (12, 6), "w0": (6, 12), "w1": (12, 6)})
    seen: Counter[str] = Counter()
    check(program, {"dp": dp, "tp": tp, "microbatches": microbatches}, seen)
    assert seen["distributed"]


PARTLY_AFTER = """
func.func @main(%x: tensor<12x6xf32> {dist.name = "x", dist.role = "input"})
    -> (tensor<1x6xf32> {dist.name = "s", dist.role = "output"}, tensor<12x6xf32> {dist.name = "y", dist.role = "output"}) {
  %rows = onnx.Constant dense<[0]> : tensor<1xi64>
  %sum = "onnx.ReduceSum"(%x, %rows) <{keepdims = 1 : si64}> : (tensor<12x6xf32>, tensor<1xi64>) -> tensor<1x6xf32>
  %whole = "onnx.Tanh"(%sum) : (tensor<1x6xf32>) -> tensor<1x6xf32>
  %s, %y = func.call @both(%whole, %x) : (tensor<1x6xf32>, tensor<12x6xf32>) -> (tensor<1x6xf32>, tensor<12x6xf32>)
  func.return %s, %y : tensor<1x6xf32>, tensor<12x6xf32>
}
func.func private @both(%t: tensor<1x6xf32>, %x: tensor<12x6xf32>) -> (tensor<1x6xf32>, tensor<12x6xf32>) {
  %s = "onnx.Neg"(%t) : (tensor<1x6xf32>) -> tensor<1x6xf32>
  %y = "onnx.Neg"(%x) : (tensor<12x6xf32>) -> tensor<12x6xf32>
  func.return %s, %y : tensor<1x6xf32>, tensor<12x6xf32>
}
"""


def test_a_call_that_is_partly_after_the_loop_is_opened():
    """Tanh needs the whole sum, so it and its Neg run after the loop; the other Neg, of the batch, runs inside it."""
    seen: Counter[str] = Counter()
    check(Program(PARTLY_AFTER, {"x": (12, 6)}), {"dp": 2, "microbatches": 2}, seen)
    assert seen["distributed"]


BEFORE_ON_TWO_STAGES = """
func.func @main(%x: tensor<12x6xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"},
    %v: tensor<6x6xf32> {dist.name = "v", dist.role = "parameter"}) -> (tensor<12x6xf32> {dist.name = "a", dist.role = "output"},
    tensor<12x6xf32> {dist.name = "b", dist.role = "output"}, tensor<6x6xf32> {dist.name = "c", dist.role = "output"}) {
  %0 = "onnx.Relu"(%x) : (tensor<12x6xf32>) -> tensor<12x6xf32>
  %1 = "onnx.MatMul"(%x, %w) : (tensor<12x6xf32>, tensor<6x6xf32>) -> tensor<12x6xf32>
  %2 = "onnx.Relu"(%w) : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %3 = "onnx.MatMul"(%2, %v) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %0, %1, %3 : tensor<12x6xf32>, tensor<12x6xf32>, tensor<6x6xf32>
}
"""


def test_what_needs_no_batch_waits_for_what_another_stage_computes():
    seen: Counter[str] = Counter()
    check(Program(BEFORE_ON_TWO_STAGES, {"x": (12, 6), "w": (6, 6), "v": (6, 6)}), {"pp": 2, "microbatches": 2}, seen)
    assert seen["distributed"]


@pytest.mark.long
def test_many_distributed_models():
    seen = run_examples(1000, largest=14)
    assert seen["distributed"] > sum(seen.values()) / 2, seen


# --- apply-sharding: any strategy, however bad ---


def annotate(draw: st.DrawFn, module: ModuleOp, mesh: dict[str, int]) -> None:
    """Gives a module rules, a mesh and random strategies; arguments are whole or cut, as drawn."""
    ShardcombineAnnotatePass().apply(Context(), module)
    function = entry_function(module)
    module.body.block.insert_op_before(MeshOp("mesh", mesh), function)
    for op in function.body.block.ops:
        if "dist.rule" in op.attributes:
            op.attributes["dist.strategy"] = StrategyAttr.of("mesh", _choices(draw, op, mesh))
    attributes = [dict(known) for known in argument_attributes(function)]
    for argument, known in zip(function.body.block.args, attributes, strict=True):
        free = [d for d, n in enumerate(shape_of(argument)) if all(n % size == 0 for size in mesh.values())]
        states: dict[str, State] = {}
        for axis in mesh:
            if free and draw(st.booleans()):
                dim = free.pop(draw(st.integers(0, len(free) - 1)))
                states[axis] = Sharded(dim, (shape_of(argument)[dim],))
        known["dist.sharding"] = ShardingAttr.of("mesh", len(shape_of(argument)), states)
    function.arg_attrs = ArrayAttr([DictionaryAttr(known) for known in attributes])


def _choices(draw: st.DrawFn, op: Operation, mesh: dict[str, int]) -> dict[str, Choice]:
    """An option per axis, in pieces where a factor can be; not two axes that cut one dim, or that add up."""
    chosen: dict[str, Option] = {}
    for axis, size in mesh.items():
        pieces = [p for n in {*EXTENTS, 3} if n % size == 0 for p in ((n, n), (n, 2 * n), (n, n, n))]
        found = [o for o in options(op, size, pieces) if not any(_clash(o, other) for other in chosen.values())]
        chosen[axis] = draw(st.sampled_from(found))
    return {axis: option.choice for axis, option in chosen.items()}


def _clash(first: Option, second: Option) -> bool:
    """Whether two axes would do to one value what only one can."""
    return any(
        (isinstance(a, Sharded) and isinstance(b, Sharded) and a.dim == b.dim)
        or (isinstance(a, Partial) and isinstance(b, Partial) and a != b)
        for a, b in zip((*first.operands, *first.results), (*second.operands, *second.results), strict=True)
    )


MESHES = st.sampled_from([{"a": 2}, {"a": 3}, {"a": 2, "b": 3}, {"a": 2, "b": 2}])


def check_strategies(data: st.DataObject, program: Program, mesh: dict[str, int], seen: Counter[str]) -> None:
    module = parse(program.text)
    inputs = program.draw_inputs()
    expected = run(module, inputs, dtype=np.float64)
    annotate(data.draw, module, mesh)
    sequential = module.clone()
    assert str(parse(str(module))) == str(module)
    try:
        ApplyShardingPass().apply(Context(), module)
    except DistirError as refusal:
        seen[str(refusal)] += 1
        return
    module.verify()
    check_module(module)
    found = {op.name for op in entry_function(module).body.block.ops}
    seen.update(found & {"dist.allreduce", "dist.allgather", "dist.reducescatter", "dist.alltoall", "dist.zeros"})
    seen["sharded"] += 1
    seen["proven"] += bool(prove(sequential, module))
    assert_agree(expected, run(module, inputs, dtype=np.float64))


def run_strategies(count: int, largest: int) -> Counter[str]:
    seen: Counter[str] = Counter()

    @settings(max_examples=count, **QUIET)
    @given(st.data(), models(largest), MESHES)
    def examples(data: st.DataObject, program: Program, mesh: dict[str, int]) -> None:
        check_strategies(data, program, mesh, seen)

    examples()
    return seen


def test_any_strategy_leaves_what_a_model_computes():
    seen = run_strategies(15, largest=6)
    assert seen["sharded"] > 10, seen
    assert seen["proven"] > 0.95 * seen["sharded"], seen


@pytest.mark.long
def test_many_strategies():
    seen = run_strategies(1000, largest=12)
    assert seen["sharded"] > 800, seen
    assert seen["proven"] > 0.98 * seen["sharded"], seen
    assert min(seen[f"dist.{kind}"] for kind in ("allreduce", "allgather", "reducescatter", "alltoall", "zeros")) > 20
