"""Lookups in a table of which each device has some rows: the distributed program against the whole one, on arrays."""

import math
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

import distir
from distir.backends.torch import run as run_on_ranks
from distir.dialects.registry import program_context
from distir.dialects.sharding import MeshOp, RuleAttr, StrategyAttr, UseFactor
from distir.interpreters.machines import load_machine
from distir.interpreters.reference import run, run_ranks
from distir.interpreters.simulate import simulate
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.project_to_rank import project
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass
from tests.unit.shard_executor import violations

PROGRAM = """
dist.mesh @mesh = <["dp" = 2, "tp" = 3]>
func.func @main(%t: tensor<60x8xf32> {dist.name = "t"}, %i: tensor<4x6xi64> {dist.name = "i"})
    -> (tensor<4x6x8xf32> {dist.name = "y"}) {
  %y = "onnx.Gather"(%t, %i) <{axis = 0 : si64}> {dist.strategy = #dist.strategy<@mesh, STRATEGY>}
      : (tensor<60x8xf32>, tensor<4x6xi64>) -> tensor<4x6x8xf32>
  func.return %y : tensor<4x6x8xf32>
}
"""


def lookup(strategy: str) -> ModuleOp:
    context = program_context()
    module = Parser(context, PROGRAM.replace("STRATEGY", strategy)).parse_module()
    ShardcombineAnnotatePass().apply(context, module)
    ApplyShardingPass().apply(context, module)
    module.verify()
    return module


@pytest.mark.parametrize(
    "strategy", ['{"tp": S4}', '{"dp": S2, "tp": S4}', '{"dp": S4, "tp": S4}', '{"dp": S4, "tp": S3}']
)
def test_rows_on_several_devices_add_up(strategy: str) -> None:
    """Indices over the whole range, from the end too. S4 is the rows, S2 and S3 the dims of the indices."""
    rng = np.random.default_rng(0)
    table, indices = rng.standard_normal((60, 8)), rng.permutation(np.arange(-60, 60))[:24].reshape(4, 6)
    got = run(lookup(strategy), {"t": table, "i": indices}, dtype=np.float64)["y"]
    np.testing.assert_array_equal(got, table[indices])


def test_rank_programs_look_up_the_same() -> None:
    rng = np.random.default_rng(1)
    table, indices = rng.standard_normal((60, 8)).astype(np.float32), rng.integers(-60, 60, (4, 6))
    got = run_on_ranks(lookup('{"tp": S4}').clone(), {"t": table, "i": indices})["y"]
    np.testing.assert_array_equal(got, table[indices])


def test_a_search_cuts_the_rows_where_memory_is_short() -> None:
    """The chosen lookup computes the same, in the time that the search said it takes."""
    program = Path(__file__).parents[2] / "filecheck" / "passes" / "ilp-shard" / "offset.mlir"
    context = program_context()
    module = Parser(context, program.read_text()).parse_module()
    whole = module.clone()
    IlpShardPass(mesh="tp=2", machine="dgx-2", restrict="tp=model", memory_limit="30MB").apply(context, module)
    (mesh,) = (op for op in module.body.block.ops if isinstance(op, MeshOp))
    seconds = mesh.attributes["dist.seconds"].value.data  # pyright: ignore
    ApplyShardingPass().apply(context, module)
    assert {op.name for op in module.walk()} >= {"dist.local_index", "dist.inside"}
    rng = np.random.default_rng(2)
    inputs = {"table": rng.standard_normal((36000, 64)), "i": rng.integers(0, 36000, (32, 8))}
    expected = run(whole, inputs, dtype=np.float64)["y"]
    np.testing.assert_allclose(run(module, inputs, dtype=np.float64)["y"], expected, rtol=1e-12)
    assert simulate(module, load_machine("dgx-2")).makespan_seconds == pytest.approx(seconds, rel=1e-9)


ROWS_AND_COLUMNS = '%x: tensor<12x10xf32> {dist.name = "x"}'
OTHER_LOOKUPS = {
    "gradient of a table, without the padding index": (
        "offset = S4(ignored = -1)",
        '%x: tensor<4x6x8xf32> {dist.name = "x"}, %i: tensor<4x6xi64> {dist.name = "i"}',
        '"aten.embedding_dense_backward"(%x, %i) <{num_weights = 12 : i64, padding_idx = -1 : i64, '
        "scale_grad_by_freq = false}> : (tensor<4x6x8xf32>, tensor<4x6xi64>) -> tensor<12x8xf32>",
    ),
    "gradient of a loss over classes, without those to ignore": (
        "offset = S2(ignored = -100)",
        f'{ROWS_AND_COLUMNS}, %i: tensor<12xi64> {{dist.name = "i"}}, %g: tensor<f32> {{dist.name = "g"}}',
        '"aten.nll_loss_backward"(%g, %x, %i, %g) <{reduction = 2 : i64, ignore_index = -100 : i64}> '
        ": (tensor<f32>, tensor<12x10xf32>, tensor<12xi64>, tensor<f32>) -> tensor<12x10xf32>",
    ),
    "what is there stays": (
        "offset = S2(kept = 0)",
        f'{ROWS_AND_COLUMNS}, %i: tensor<12x1xi64> {{dist.name = "i"}}',
        '"aten.scatter.value"(%x, %i) <{dim = 1 : i64, value = -1.0 : f64}> '
        ": (tensor<12x10xf32>, tensor<12x1xi64>) -> tensor<12x10xf32>",
    ),
    "nothing is added": (
        "offset = S3(zero = 2)",
        f'{ROWS_AND_COLUMNS}, %i: tensor<8xi64> {{dist.name = "i"}}, %g: tensor<8x10xf32> {{dist.name = "g"}}',
        '"aten.index_add"(%x, %i, %g) <{dim = 0 : i64, alpha = 1 : i64}> '
        ": (tensor<12x10xf32>, tensor<8xi64>, tensor<8x10xf32>) -> tensor<12x10xf32>",
    ),
}


@pytest.mark.parametrize("kind", OTHER_LOOKUPS)
def test_indices_of_other_shards(kind: str) -> None:
    """By what an operator takes: an index that it ignores, zeros that it adds, its operand where it writes nothing. The rule holds on
    uneven shards, and the distributed program on two devices and on 2 x 2 computes the same, on ranks too."""
    offset, arguments, text = OTHER_LOOKUPS[kind]
    result = text.split("-> ")[1]
    context = program_context()
    program = (
        f'func.func @main({arguments}) -> ({result} {{dist.name = "y"}}) {{\n%y = {text}\nfunc.return %y : {result}\n}}'
    )
    module = Parser(context, program).parse_module()
    rng = np.random.default_rng(0)
    (op,) = (o for o in module.walk() if o.name.startswith("aten."))
    rule = Discovery(InterpreterDomains()).rule(op)
    assert offset in str(rule)
    positions = int(result.removeprefix("tensor<").split("x")[1 if "S2" in offset else 0])
    names = {a.name_hint: a.type for a in module.body.block.first_op.body.block.args}  # type: ignore[union-attr]
    inputs = {n: rng.standard_normal(t.get_shape()) for n, t in names.items()}  # type: ignore[attr-defined]
    inputs["i"] = rng.integers(0, positions, inputs["i"].shape)
    if "ignored" in offset:
        inputs["i"][0] = -1 if "S4" in offset else -100
    operands = [inputs[str(value.name_hint)] for value in op.operands]
    tried = violations(op, rule, operands, rng)
    assert tried.offsets == 2
    assert not tried.violations
    expected = run(module, inputs, dtype=np.float64)["y"]
    factor = next(iter(rule.offsets))
    for axes in ({"a": 2}, {"a": 2, "b": 2}):
        distributed = module.clone()
        (copy,) = (o for o in distributed.walk() if o.name.startswith("aten."))
        copy.attributes["dist.rule"] = RuleAttr(rule)
        choices = {"a": UseFactor("S1" if len(axes) > 1 else factor)} | (
            {"b": UseFactor(factor)} if len(axes) > 1 else {}
        )
        copy.attributes["dist.strategy"] = StrategyAttr.of("mesh", choices)
        distributed.body.block.insert_op_before(MeshOp("mesh", axes), distributed.body.block.first_op)  # type: ignore[arg-type]
        ApplyShardingPass().apply(context, distributed)
        distributed.verify()
        np.testing.assert_allclose(run(distributed, inputs, dtype=np.float64)["y"], expected, rtol=1e-12)
        ranks = [project(distributed, rank) for rank in range(2 * len(axes))]
        np.testing.assert_allclose(run_ranks(ranks, inputs, dtype=np.float64)["y"], expected, rtol=1e-12)


TRIANGLES = {
    "aten.tril": '"aten.tril"(%x) <{diagonal = DIAGONAL : i64}> : (TYPE) -> TYPE',
    "aten.triu": '"aten.triu"(%x) <{diagonal = DIAGONAL : i64}> : (TYPE) -> TYPE',
    "onnx.Trilu": '"onnx.Trilu"(%x, %k) <{upper = 1 : si64}> : (TYPE, tensor<i64>) -> TYPE',
}


def triangle(name: str, diagonal: int, rows: int, columns: int) -> ModuleOp:
    type_, k = f"tensor<3x{rows}x{columns}xf32>", f"%k = onnx.Constant dense<{diagonal}> : tensor<i64>"
    text = f"""func.func @main(%x: {type_} {{dist.name = "x"}}) -> ({type_} {{dist.name = "y"}}) {{
        {k if "%k" in TRIANGLES[name] else ""}
        %y = {TRIANGLES[name].replace("DIAGONAL", str(diagonal)).replace("TYPE", type_)}
        func.return %y : {type_} }}"""
    return Parser(program_context(), text).parse_module()


@pytest.mark.parametrize(
    ("name", "diagonal"),
    [
        ("aten.tril", -100),
        *(pytest.param("aten.tril", diagonal, marks=pytest.mark.long) for diagonal in (0, 3, -3, 100)),
        pytest.param("aten.triu", 100, marks=pytest.mark.long),
        ("onnx.Trilu", 3),
    ],
)
def test_rows_and_columns_of_a_triangle_move_its_diagonal(name: str, diagonal: int) -> None:
    """By hand: element (i, j) is kept for j - i <= d (or >= d). With i counted from row s that is j - i <= d + s, with j counted from
    column s it is j - i <= d - s. Whatever d is: few rows and columns, which a stand-in has, may be all kept or all zero."""
    module = triangle(name, diagonal, 512, 512)
    (op,) = (op for op in module.walk() if op.name == name)
    rule, entry = Discovery(InterpreterDomains()).rule(op), "k[0]" if name == "onnx.Trilu" else "diagonal[0]"
    assert f"offset = S2(raises = {entry}), offset = S3(lowers = {entry})" in str(rule)
    assert "[S1, S2, S3]" in str(rule)
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal((3, 130, 120)), np.array(diagonal)][: len(op.operands)]
    tried = violations(op, rule, operands, rng)
    assert tried.offsets == 4
    assert not tried.violations


@pytest.mark.parametrize("name", ["aten.tril", "onnx.Trilu"])
@pytest.mark.parametrize(
    "choices",
    [{"a": "S2"}, {"a": "S3"}, {"a": "S2", "b": "S3"}, {"a": "S2", "b": "S2"}, {"a": "S1", "b": "S3"}],
    ids=str,
)
def test_a_triangle_on_several_devices(name: str, choices: dict[str, str]) -> None:
    """Shards are uneven: 13 rows and 11 columns on 2 and on 2 x 3 devices."""
    module = triangle(name, 2, 13, 11)
    x = np.random.default_rng(0).standard_normal((3, 13, 11))
    expected = np.tril(x, 2) if name == "aten.tril" else np.triu(x, 2)
    np.testing.assert_array_equal(run(module, {"x": x}, dtype=np.float64)["y"], expected)
    ShardcombineAnnotatePass().apply(program_context(), module)
    (op,) = (op for op in module.walk() if op.name == name)
    op.attributes["dist.strategy"] = StrategyAttr.of("mesh", {axis: UseFactor(f) for axis, f in choices.items()})
    sizes = {"a": 2, "b": 3}
    mesh = MeshOp("mesh", {axis: sizes[axis] for axis in choices})
    module.body.block.insert_op_before(mesh, module.body.block.first_op)  # type: ignore[arg-type]
    ApplyShardingPass().apply(program_context(), module)
    module.verify()
    np.testing.assert_array_equal(run(module, {"x": x}, dtype=np.float64)["y"], expected)
    ranks = [project(module, rank) for rank in range(math.prod(sizes[axis] for axis in choices))]
    np.testing.assert_array_equal(run_ranks(ranks, {"x": x}, dtype=np.float64)["y"], expected)


def test_numbers_that_count_no_positions_are_not_shifted() -> None:
    """A distance that rows are rolled by, an axis, a factor, and diagonals that are not moved as the number is."""
    rows = np.ones((8, 9))
    for function in (
        lambda x, n: np.roll(x, n, 0),
        lambda x, n: np.cumsum(x, n),
        lambda x, n: np.cumsum(x, 0) * n,
        lambda x, n: np.tril(x, abs(n)),
        lambda x, n: np.tril(x, min(n, 4)),
    ):
        assert "raises" not in (text := str(distir.discover(function, (rows, 1))))
        assert "lowers" not in text
