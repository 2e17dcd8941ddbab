"""The static proof: right programs are proven, wrong ones are rejected where they are wrong."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, IntegerAttr, ModuleOp, i64
from xdsl.dialects.func import Func, ReturnOp
from xdsl.dialects.test import TestOp
from xdsl.ir import Block, Operation, Region
from xdsl.parser import Parser

from distir.dialects.aten import Aten
from distir.dialects.dist import AccumulateOp, AllReduceOp, Dist, MicrobatchesOp, SliceOp, ZerosOp
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.entry import entry_function, machine_devices
from distir.interpreters.proof import Proof, prove, prove_ranks, terms
from distir.interpreters.proof.constants import close
from distir.interpreters.proof.indices import (
    FREE,
    Base,
    Equal,
    Indices,
    Mismatch,
    concat,
    full,
    product,
    ranges,
    special,
)
from distir.interpreters.proof.templates import Form, Forms, Kinds
from distir.interpreters.proof.terms import scaled_by
from distir.interpreters.proof.values import constant, is_zero, kind_of, term_of
from distir.interpreters.reference import run_operator
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.decompose import prepare_like
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.pipeline_schedule import PipelineSchedulePass
from distir.passes.project_to_rank import project
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass
from tests.end_to_end.test_equivalence import SAMPLE, THIRDS, Degrees
from tests.long_cases import also_long
from tests.mutants import mutants
from tests.mutated_programs import PROGRAMS, copied, mlp_adamw
from tests.small_models import Model, gpt2, mlp


def both(sequential: ModuleOp, distributed: ModuleOp) -> list[Proof]:
    count = machine_devices(distributed, entry_function(distributed))
    ranks = [project(distributed, rank) for rank in range(count)]
    return [prove(sequential, distributed), prove_ranks(sequential, ranks)]


@pytest.mark.parametrize("degrees", SAMPLE, ids=str)
@pytest.mark.parametrize("model", [gpt2, mlp])
def test_plans_are_proven(model: Callable[..., Model], degrees: Degrees):
    plan = model(batch=8)
    for proof in both(plan.module, plan.distributed(**asdict(degrees))):
        assert proof, proof.failures


@pytest.mark.parametrize("degrees", THIRDS, ids=str)
def test_degrees_that_are_no_powers_of_two(degrees: Degrees):
    plan = mlp(batch=9)
    for proof in both(plan.module, plan.distributed(**asdict(degrees))):
        assert proof, proof.failures


Operation_ = TypeVar("Operation_", bound=Operation)
QUICK = ("mlp-onnx", "gpt2-onnx", "uneven")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in PROGRAMS])
def test_programs_with_state_offsets_and_windows(name: str, tmp_path: Path):
    sequential, distributed = PROGRAMS[name](tmp_path)
    prepared = sequential.clone()
    prepare_like(prepared, distributed)
    for proof in both(prepared, distributed):
        assert proof, proof.failures


def staged(sequential: ModuleOp, **plan: Any) -> ModuleOp:
    """The program of a plan before it is scheduled: a loop over microbatches, on the devices of one stage."""
    module = copied(sequential)
    for each in DtpParallelizePass(sharding="ilp", **plan).pipeline():
        if isinstance(each, PipelineSchedulePass):
            break
        each.apply(Context(), module)
    return module


STAGED: dict[str, tuple[Callable[[], ModuleOp], dict[str, Any]]] = {
    "outputs of rows": (lambda: mlp(batch=8).module, {"dp": 2, "pp": 2, "microbatches": 2}),
    "zero": (mlp_adamw, {"dp": 2, "microbatches": 2, "zero": 3}),
    "split backward": (mlp_adamw, {"pp": 2, "microbatches": 4, "schedule": "zb-h1"}),
    "recomputed": (mlp_adamw, {"tp": 2, "pp": 2, "microbatches": 2, "recompute": "full"}),
}


@pytest.mark.parametrize("name", also_long(STAGED, ("outputs of rows", "recomputed")))
def test_loops_over_microbatches_are_proven(name: str):
    """And what is scheduled of them; a loop that runs once less, or a sum that misses an addend, is not."""
    model, plan = STAGED[name]
    sequential = model()
    prepared, module = copied(sequential), staged(sequential, **plan)
    prepare_like(prepared, module)
    proof = prove(prepared, module)
    assert proof, proof.failures
    if name == "outputs of rows":
        scheduled = copied(sequential)
        DtpParallelizePass(sharding="ilp", **plan).apply(Context(), scheduled)
        for proof in both(prepared, scheduled):
            assert proof, proof.failures
    (loop,) = (op for op in module.walk() if isinstance(op, MicrobatchesOp))
    loop.count = IntegerAttr(loop.times - 1, i64)
    assert not prove(prepared, module)
    loop.count = IntegerAttr(loop.times + 1, i64)
    sum_ = next(op for op in module.walk() if isinstance(op, AccumulateOp) and len(op.operands) == 2)
    sum_.results[0].replace_all_uses_with(sum_.operands[0])
    assert not prove(prepared, module)


def test_a_mean_over_what_a_mask_keeps_is_proven_in_microbatches():
    """Where the gradient is a constant before it is divided by what the batch keeps; not where nothing divides."""

    def loss(output: Tensor, label: Tensor) -> Tensor:
        kept = (label > 0).to(output.dtype)
        return ((output - label) ** 2 * kept).sum() / kept.sum()

    model = nn.Linear(3, 2)
    step = training_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
    sequential = import_step(step, (torch.randn(4, 3), torch.randn(4, 2)))
    distributed = sequential.clone()
    DtpParallelizePass(microbatches=2).apply(Context(), distributed)
    prepare_like(sequential, distributed)
    assert prove(sequential, distributed)
    late = [op for op in distributed.walk() if op.name == "aten.div.Tensor"]
    assert late
    late[0].results[0].replace_all_uses_with(late[0].operands[0])
    assert not prove(sequential, distributed)


def test_a_step_whose_size_follows_from_its_gradient_is_proven_in_microbatches():
    """What is divided is a number, as in the sequential program: nothing before it waits for the batch."""
    model = nn.Linear(3, 2)
    step = training_step(model, nn.functional.cross_entropy, lambda p: torch.optim.Adafactor(p, lr=0.1))
    sequential = import_step(step, (torch.randn(4, 3), torch.randint(0, 2, (4,))))
    distributed = sequential.clone()
    DtpParallelizePass(microbatches=2).apply(Context(), distributed)
    prepare_like(sequential, distributed)
    assert prove(sequential, distributed)


@pytest.mark.parametrize("factor", ["S1", "S2", "S3"])
def test_each_use_of_a_value_may_be_another_shard(factor: str):
    """x @ x cut by rows, by the dim that is summed, and by columns; a program in which one use is another value is rejected."""
    types = "(tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>"
    roles = '(%x: tensor<6x6xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<6x6xf32> {dist.name = "w", dist.role = "input"})'
    result = '(tensor<6x6xf32> {dist.name = "y", dist.role = "output"})'
    rule = "#dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, found = exact>"
    cut = f'{{dist.rule = {rule}, dist.strategy = #dist.strategy<@mesh, {{"a": {factor}}}>}}'

    context = Context()
    for dialect in (Builtin, Dist, Func, Aten):
        context.load_dialect(dialect)

    def program(right: str, attributes: str = "") -> ModuleOp:
        body = f'%0 = "aten.mm"(%x, {right}) {attributes} : {types} func.return %0 : tensor<6x6xf32>'
        mesh = 'dist.mesh @mesh = <["a" = 2]>' if attributes else ""
        return Parser(context, f"{mesh} func.func @main{roles} -> {result} {{ {body} }}").parse_module()

    sequential, distributed, other = program("%x"), program("%x", cut), program("%w", cut)
    ShardcombineAnnotatePass().apply(context, sequential)
    for module in (distributed, other):
        ApplyShardingPass().apply(context, module)
    for proof in both(sequential, distributed):
        assert proof, proof.failures
    assert not any(both(sequential, other))


def test_time_follows_distinct_bodies():
    """Sixteen microbatches of two replicas take a few operations more than two: calls, messages and sums of the loop."""
    plan = mlp(batch=32)
    few, many = (
        prove(plan.module, plan.distributed(dp=2, tp=1, pp=2, microbatches=n, schedule="1f1b")).walked for n in (4, 16)
    )
    assert many - few <= 12 * 40


def find(module: ModuleOp, kind: type[Operation_]) -> Operation_:
    return next(op for op in module.walk() if isinstance(op, kind))


def test_a_constant_is_computed_once_whatever_the_number_of_layers(monkeypatch: pytest.MonkeyPatch):
    """A layer makes its mask of constants; the sequential program has it twice, the other one in a function that is called twice."""
    layer = """
      %ones{i} = "aten.full"() <{{size = array<i64: 4, 4>, fill_value = 1.0 : f64}}> : () -> tensor<4x4xf32>
      %mask{i} = "aten.tril"(%ones{i}) <{{diagonal = 0 : i64}}> : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %y{i} = "aten.mul.Tensor"(%{x}, %mask{i}) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>"""
    text = f"""func.func @main(%x: tensor<4x4xf32> {{dist.name = "x"}}) -> (tensor<4x4xf32> {{dist.name = "y"}}) {{
      {layer.format(i=0, x="x")}{layer.format(i=1, x="y0")}
      func.return %y1 : tensor<4x4xf32> }}"""
    called = f"""func.func @main(%x: tensor<4x4xf32> {{dist.name = "x"}}) -> (tensor<4x4xf32> {{dist.name = "y"}}) {{
      %h = func.call @layer(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %y = func.call @layer(%h) : (tensor<4x4xf32>) -> tensor<4x4xf32>
      func.return %y : tensor<4x4xf32> }}
    func.func private @layer(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {{
      {layer.format(i=0, x="x")}
      func.return %y0 : tensor<4x4xf32> }}"""
    context, computed = Context(), list[str]()
    for dialect in (Builtin, Func, Dist, Aten):
        context.load_dialect(dialect)

    def count(op: Operation, operands: Any) -> Any:
        computed.append(op.name)
        return run_operator(op, operands)

    monkeypatch.setattr(terms, "run_operator", count)
    assert prove(Parser(context, text).parse_module(), Parser(context, called).parse_module())
    assert computed.count("aten.tril") == 1


@pytest.mark.parametrize(("dims", "is_proven"), [("0, 1", True), ("0, 5", False)])
def test_an_operation_that_cannot_run_is_no_proof_though_nothing_uses_it(dims: str, is_proven: bool):
    def program(unused: str) -> ModuleOp:
        body = f"{unused} func.return %x : tensor<4x6xf32>"
        return Parser(
            context,
            f"""func.func @main(%x: tensor<4x6xf32> {{dist.name = "x"}}) -> (tensor<4x6xf32> {{dist.name = "y"}}) {{
          {body} }}""",
        ).parse_module()

    context = Context()
    for dialect in (Builtin, Func, Dist, Aten):
        context.load_dialect(dialect)
    unused = f'%0 = "aten.permute"(%x) <{{dims = array<i64: {dims}>}}> : (tensor<4x6xf32>) -> tensor<4x6xf32>'
    assert bool(prove(program(""), program(unused))) == is_proven


def test_a_dropped_allreduce_is_named_where_its_addend_is_used():
    plan = mlp(batch=8)
    distributed = plan.distributed(dp=2, tp=1, pp=1, microbatches=1, schedule="gpipe")
    reduction = find(distributed, AllReduceOp)
    for result, operand in zip(reduction.results, reduction.operands, strict=True):
        result.replace_all_uses_with(operand)
    reduction.detach()
    proof = prove(plan.module, distributed)
    assert not proof
    assert "only an addend" in proof.failures[0].reason
    assert "0:4 of 8" in proof.failures[0].reason


def test_a_wrong_slice_is_named():
    plan = mlp(batch=8)
    distributed = plan.distributed(dp=1, tp=1, pp=1, microbatches=2, schedule="gpipe")
    cut = find(distributed, SliceOp)
    moved = SliceOp(cut.input, [(2, 6), *cut.ranges[1:]])
    assert cut.parent is not None
    cut.parent.insert_op_before(moved, cut)
    cut.output.replace_all_uses_with(moved.output)
    proof = prove(plan.module, distributed)
    assert not proof
    assert "2:6" in str(proof.failures[0])


def test_zeros_are_an_addend_of_anything_and_the_whole_of_nothing():
    plan = mlp(batch=8)
    distributed = plan.distributed(dp=1, tp=1, pp=1, microbatches=1, schedule="gpipe")
    returned = find(distributed, ReturnOp)
    assert returned.parent is not None
    nothing = ZerosOp(returned.operands[1].type)
    returned.parent.insert_op_before(nothing, returned)
    returned.operands[1] = nothing.output
    proof = prove(plan.module, distributed)
    assert [failure.reason[:11] for failure in proof.failures] == ["it is zeros"]
    assert len(proof.outputs) == 4


def test_rules_that_a_proof_rests_on_are_listed():
    plan = mlp(batch=8)
    proof = prove(plan.module, plan.distributed(dp=2, tp=1, pp=1, microbatches=1, schedule="gpipe"))
    expected = {
        "onnx.MatMul",
        "onnx.Relu",
        "grad.matmul_grad",
        "grad.relu_grad",
        "grad.sgd",
        "grad.loss",
        "grad.loss_grad",
    }
    assert {use.operator for use in proof.rules} == expected  # the update is proven for gradients of any weights
    assert {use.found for use in proof.rules} == {"exact"}


def test_without_rules_nothing_that_is_cut_is_proven():
    plan = mlp(batch=8)
    distributed = plan.distributed(dp=2, tp=1, pp=1, microbatches=1, schedule="gpipe")
    assert not prove(plan.module, distributed, rules=lambda op: None)


@pytest.mark.parametrize("name", ["mlp-onnx", pytest.param("mlp-zero", marks=pytest.mark.long)])
def test_mutants_that_change_results_are_rejected(name: str, tmp_path: Path):
    from tests.mutation_testing import Examiner

    sequential, distributed = PROGRAMS[name](tmp_path)
    prepared = sequential.clone()
    prepare_like(prepared, distributed)
    examiner = Examiner(sequential, distributed)
    proven = [(what, mutant) for what, mutant in mutants(distributed, 14, seed=3) if prove(prepared, mutant)]
    assert [what for what, mutant in proven if examiner.changes(mutant)] == []


# --- index sets ---


def test_index_sets_are_products_and_quotients():
    rows = ranges([(2, 4)])
    assert product(rows, full(3), 3) is ranges([(6, 12)])
    assert product(rows, ranges([(0, 1)]), 3) is ranges([(6, 7), (9, 10)])
    assert ranges([(6, 7), (9, 10)]).split(3) == (rows, ranges([(0, 1)]))
    with pytest.raises(Mismatch):
        ranges([(6, 7), (10, 11)]).split(3)


def meant(indices: Indices, extent: int) -> list[set[int]]:
    """For each entry the indices that may be meant."""
    found: list[set[int]] = []
    for base, _, _, start, stop in indices.segments:
        for position in range(start, stop):
            each = (lambda i, b=base: (i % b.period if b.period else i) // b.block) if isinstance(base, Equal) else int
            found.append({i for i in range(extent) if each(i) == each(position)})
    return found


def sets(extent: int) -> list[Indices]:
    known = [ranges([(a, b)]) for a in range(extent) for b in range(a + 1, extent + 1)]
    return [*known, ranges([(extent - 1, extent), (0, 1)]), *(special(FREE, n) for n in range(1, extent + 1))]


@pytest.mark.parametrize(("rows", "columns"), [(2, 4), (3, 2), (4, 3)])
def test_what_is_meant_of_a_merged_dim_is_meant_of_its_parts(rows: int, columns: int):
    """In a product, a quotient, and blocks of either no index is meant that was not before."""
    extent = rows * columns
    for outer in sets(rows):
        for inner in sets(columns):
            merged = product(outer, inner, columns)
            pairs = [(a, b) for a in meant(outer, rows) for b in meant(inner, columns)]
            assert all(
                found <= {i * columns + j for i in a for j in b}
                for found, (a, b) in zip(meant(merged, extent), pairs, strict=True)
            )
            assert merged.chosen is merged or merged.may_be(merged.chosen)
            blocks = meant(merged.scaled(2), 2 * extent)
            assert all(
                blocks[2 * k + r] <= {2 * i + r for i in each}
                for k, each in enumerate(meant(merged, extent))
                for r in range(2)
            )
            assert merged.scaled(2).unscaled(2).size == merged.size
            with suppress(Mismatch):
                a, b = merged.split(columns)
                again = [{i * columns + j for i in x for j in y} for x in meant(a, rows) for y in meant(b, columns)]
                assert all(found <= each for found, each in zip(again, meant(merged, extent), strict=True))


def test_what_holds_for_an_unknown_set_holds_for_what_it_is():
    base = Base("rows", 2, 4)
    unknown = Indices.of([(base, 1, 0, 0, 2)])
    known = ranges([(0, 1), (3, 4)])
    merged = product(unknown, ranges([(1, 3)]), 5)
    assert merged.substituted({base: known}) is product(known, ranges([(1, 3)]), 5)
    assert merged.split(5) == (unknown, ranges([(1, 3)]))
    parts = [merged.slice(0, 2), merged.slice(2, 4)]
    assert concat(parts) is merged
    with pytest.raises(Mismatch):
        unknown.unscaled(2)


@pytest.mark.parametrize("element", ["float32", "bfloat16"])
def test_constants_that_are_no_number_are_alike(element: str):
    a, b = (np.array([[1, np.nan], [x, np.nan]], np.dtype(getattr(ml_dtypes, element, element))) for x in (2, 3))
    assert close(a, a.copy())
    assert not close(a, b)


def test_numbers_that_scale_a_value_commute() -> None:
    """A mean by a number that is counted and a gradient that is clipped: whichever comes first, and wherever the names of the two lie in memory."""
    kind = kind_of((), "f32")
    value, count, limit = (term_of(kind, name) for name in ("value", "count", "limit"))
    found = set[int]()
    for number in range(50):
        names = [("aten.div.Tensor", tuple([("number", 1)])), ("aten.mul.Tensor", tuple([("number", 1)]))]
        scales = [(name, by) for name, by in zip(names, (count, limit), strict=True)][:: -1 if number % 2 else 1]
        found.add(id(scaled_by(scaled_by(value, *scales[0]), *scales[1])))
    assert len(found) == 1


def test_numbers_that_scale_what_a_caller_tells() -> None:
    """Of gates that are functions, and an optimizer that scales what it has scaled."""
    torch.manual_seed(0)
    layer = nn.LSTM(4, 4, batch_first=True)
    step = training_step(layer, lambda found, label: mse_loss(found[0], label), torch.optim.NAdam(layer.parameters()))
    sequential = import_step(step, (torch.randn(4, 2, 4), torch.randn(4, 2, 4)))
    distributed = sequential.clone()
    DtpParallelizePass(dp=2).apply(Context(), distributed)
    prepare_like(sequential, distributed)
    proof = prove(sequential, distributed)
    assert proof, proof.failures


@pytest.mark.parametrize("element", ["f32", "bf16", "si64", "ui8", "complex<f32>"])
def test_zeros_of_every_kind_of_number_are_zeros(element: str):
    """The gradient of a spectrum is laid into complex ones, and scaled before that or after."""
    dtypes = {"bf16": np.dtype(ml_dtypes.bfloat16), "si64": np.int64, "ui8": np.uint8, "complex<f32>": np.complex64}
    zeros, kind = np.zeros(2, dtypes.get(element, np.float32)), kind_of((2,), element)
    assert is_zero(constant(zeros, kind))
    assert not is_zero(constant(zeros + np.ones_like(zeros), kind))


def test_what_an_operation_in_a_region_says_is_looked_at():
    """Attributes too: operations of dialects from outside may have no properties."""
    forms = Forms(Kinds())

    def form(number: int) -> Form:
        inside = TestOp.create(attributes={"times": IntegerAttr(number, i64)})
        return forms(TestOp.create(regions=[Region(Block([inside]))]))

    assert form(1) is form(1)
    assert form(1) is not form(2)
