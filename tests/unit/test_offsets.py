"""Lookups in a table of which each device has some rows: the distributed program against the whole one, on arrays."""

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.backends.torch import run as run_on_ranks
from distir.dialects.registry import DIALECTS
from distir.interpreters.reference import run
from distir.passes.apply_sharding import ApplyShardingPass
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
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    for name, factory in DIALECTS.items():
        context.register_dialect(name, factory)
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
