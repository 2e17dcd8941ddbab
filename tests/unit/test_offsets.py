"""Lookups in a table of which each device has some rows: the distributed program against the whole one, on arrays."""

from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser

from distir.backends.torch import run as run_on_ranks
from distir.dialects.registry import program_context
from distir.dialects.sharding import MeshOp
from distir.interpreters.machines import load_machine
from distir.interpreters.reference import run
from distir.interpreters.simulate import simulate
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass

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
    program = Path(__file__).parents[1] / "filecheck" / "passes" / "ilp_shard_offset.mlir"
    context = program_context()
    module = Parser(context, program.read_text()).parse_module()
    whole = module.clone()
    IlpShardPass(mesh="tp=2", machine="dgx-2", restrict="tp=model", memory_limit="8MB").apply(context, module)
    (mesh,) = (op for op in module.body.block.ops if isinstance(op, MeshOp))
    seconds = mesh.attributes["dist.seconds"].value.data  # pyright: ignore
    ApplyShardingPass().apply(context, module)
    assert {op.name for op in module.walk()} >= {"dist.local_index", "dist.inside"}
    rng = np.random.default_rng(2)
    inputs = {"table": rng.standard_normal((9000, 64)), "i": rng.integers(0, 9000, (32, 8))}
    expected = run(whole, inputs, dtype=np.float64)["y"]
    np.testing.assert_allclose(run(module, inputs, dtype=np.float64)["y"], expected, rtol=1e-12)
    assert simulate(module, load_machine("dgx-2")).makespan_seconds == pytest.approx(seconds, rel=1e-9)
