"""Annotated programs on DTensor: placements, and what processes compute, against the sequential program."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from torch.distributed.tensor import Partial, Replicate, Shard
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.backends.dtensor import placements, run
from distir.backends.dtensor.conversions import Conversions
from distir.backends.shardy.importing import parse
from distir.dialects.errors import DistirError
from distir.dialects.sharding import REPLICATED, Sharded
from distir.interpreters import reference
from distir.passes.distribution.mesh import Mesh
from tests.random_strategies import with_random_strategies
from tests.small_models import gpt2

MATMUL = "[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, found = exact"
MLP = f"""
dist.mesh @mesh = <["dp" = 2, "tp" = 2]>
func.func @main(%x: tensor<4x8xf32> {{dist.name = "x", dist.role = "input"}}, %w0: tensor<8x16xf32> {{dist.name = "w0", dist.role = "parameter"}},
                %w1: tensor<16x6xf32> {{dist.name = "w1", dist.role = "parameter"}},
                %b: tensor<4x6xf32> {{dist.name = "b", dist.sharding = #dist.sharding<@mesh, [{{"dp"}}, {{}}], partial = {{"tp": sum}}>}})
    -> (tensor<4x6xf32> {{dist.name = "y", dist.role = "output"}}) {{
  %h = "onnx.MatMul"(%x, %w0) {{dist.rule = #dist.rule<{MATMUL}>, dist.strategy = #dist.strategy<@mesh, {{"dp": S1, "tp": S3}}>}} : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %a = "onnx.Relu"(%h) {{dist.rule = #dist.rule<[S1, S2] -> {{S1: gather(0), S2: gather(1)}}, found = exact>, dist.strategy = #dist.strategy<@mesh, {{"dp": S1, "tp": S2}}>}} : (tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = "onnx.MatMul"(%a, %w1) {{dist.rule = #dist.rule<{MATMUL}>, dist.strategy = #dist.strategy<@mesh, {{"dp": S1, "tp": S2}}>}} : (tensor<4x16xf32>, tensor<16x6xf32>) -> tensor<4x6xf32>
  %y = "onnx.Add"(%p, %b) {{dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {{S1: gather(0), S2: gather(1)}}, partial = [sum: (0, 1) -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {{"dp": S1, "tp": partial(0)}}>}} : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}}
"""


def test_placements_are_what_the_strategies_need() -> None:
    """Megatron's MLP under data parallelism; the last argument says itself that it is addends."""
    assert placements(parse(MLP)) == {
        "x": (Shard(0), Replicate()),
        "w0": (Replicate(), Shard(1)),
        "w1": (Replicate(), Shard(0)),
        "b": (Shard(0), Partial("sum")),
    }


def test_what_has_no_placements_is_said() -> None:
    fused = parse(
        """dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x24xf32> {dist.name = "qkv", dist.sharding = #dist.sharding<@mesh, [{}, {"tp" [8, 8, 8]}]>}) {
  func.return
}"""
    )
    with pytest.raises(
        DistirError, match=r"qkv: dim 1 is cut in the pieces \[8, 8, 8\], which no placement of DTensor says"
    ):
        placements(fused)
    with pytest.raises(DistirError, match=r"expected one dist.mesh in the module, got 0"):
        placements(parse("func.func @main() {\n  func.return\n}"))
    with pytest.raises(DistirError, match="does not fit the rule or the shapes"):
        placements(parse(MLP.replace('"tp" = 2', '"tp" = 3')))
    overlapping = """dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<6x8xf32> {dist.name = "x"}) -> tensor<4x8xf32> {
  %y = "onnx.Relu"(%x) {dist.rule = #dist.rule<[S1(halo = [0, 2]), _] -> {S1: gather(0)}>,
    dist.strategy = #dist.strategy<@mesh, {"tp": S1}>} : (tensor<6x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}"""
    with pytest.raises(DistirError, match="does not fit the rule or the shapes"):
        placements(parse(overlapping))


def agrees(module: ModuleOp, inputs: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    expected = reference.run(module, inputs)
    found = run(module, inputs, timeout_seconds=300)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(
            found[name], value, rtol=0, atol=tolerance * max(1, np.abs(value).max()), err_msg=name
        )


def test_a_transformer_of_random_strategies_runs_on_two_processes() -> None:
    """Two layers, one function called twice; the fused QKV weight in pieces, partial sums and maxima, replicas."""
    model = gpt2(2, 4)
    module = with_random_strategies(model.module, {"tp": 2}, random.Random(0))
    text = str(module)
    assert "partial(" in text
    assert "_" in text
    agrees(module, model.inputs)


def test_axes_that_cut_a_dim_in_pieces_of_their_own() -> None:
    """The order of shards is that of what each rank has: rows, and the halves of every pair of rows."""
    mesh = Mesh((("a", 2), ("b", 1), ("c", 2)))
    conversions = Conversions(mesh, cast(Any, None))
    states = (Sharded(0, (4, 4)), Sharded(0, (8,)), Sharded(0, (4, 4)))
    order = conversions._order(states, 0)  # pyright: ignore[reportPrivateUsage]
    assert order == tuple(r for device in range(4) for r in mesh.part((8,), states, device).dims[0])
    one_axis = (Sharded(0, (8,)), Sharded(0, (4, 4)), REPLICATED)
    assert mesh.conflict(one_axis) is None
    assert [mesh.part((8,), one_axis, device).dims[0] for device in (0, 2)] == [((0, 4),), ((4, 8),)]
    assert conversions._order(one_axis, 0) is None  # pyright: ignore[reportPrivateUsage]


@pytest.mark.long
def test_rows_of_a_table_on_several_devices() -> None:
    """A lookup cut along what it looks up: every rank has some rows, indices count from both ends."""
    from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass

    module = parse(
        """dist.mesh @mesh = <["dp" = 2, "tp" = 2]>
func.func @main(%t: tensor<60x8xf32> {dist.name = "t"}, %i: tensor<4x6xi64> {dist.name = "i"}) -> (tensor<4x6x8xf32> {dist.name = "y"}) {
  %y = "onnx.Gather"(%t, %i) <{axis = 0 : si64}> {dist.strategy = #dist.strategy<@mesh, {"dp": S4, "tp": S4}>} : (tensor<60x8xf32>, tensor<4x6xi64>) -> tensor<4x6x8xf32>
  func.return %y : tensor<4x6x8xf32>
}"""
    )
    ShardcombineAnnotatePass().apply(Context(), module)
    assert placements(module)["t"] == (Shard(0), Shard(0))
    rng = np.random.default_rng(0)
    agrees(module, {"t": rng.standard_normal((60, 8)).astype(np.float32), "i": rng.integers(-60, 60, (4, 6))})


@pytest.mark.long
@pytest.mark.parametrize("axes", [{"dp": 2, "tp": 2}, {"tp": 3}, {"a": 2, "b": 1, "c": 2}], ids=str)
def test_random_strategies_on_meshes(axes: dict[str, int]) -> None:
    model = gpt2(1, 4)
    for seed in range(2):
        agrees(with_random_strategies(model.module, axes, random.Random(seed)), model.inputs)


@pytest.mark.long
def test_a_searched_training_step_trains_on_dtensors() -> None:
    """Forward, backward and AdamW of a PyTorch step, its first weight pinned to be cut, on a 2 x 2 mesh."""
    import torch
    from torch import nn

    from distir.frontends.pytorch import import_step, training_step
    from distir.interpreters.weights import weights_of

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    step = training_step(model, nn.functional.cross_entropy, torch.optim.AdamW(model.parameters(), lr=1e-2))
    x, label = torch.randn(16, 8), torch.randint(0, 4, (16,))
    module = import_step(step, (x, label))
    inputs = {**weights_of(module), "input": x.numpy(), "label": label.numpy()}
    agrees(searched(module, {"dp": 2, "tp": 2}, {"0.weight": '[{"tp"}, {}]', "input": '[{"dp"}, {}]'}), inputs)


def searched(module: ModuleOp, axes: dict[str, int], pins: dict[str, str]) -> ModuleOp:
    """Annotated by ilp-shard, with the shardings of some arguments pinned."""
    from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
    from xdsl.parser import Parser

    from distir.dialects.dist import Dist
    from distir.interpreters.entry import entry_function
    from distir.passes.ilp_shard import IlpShardPass
    from distir.passes.structure import argument_attributes

    context = Context()
    context.load_dialect(Dist)
    entry = entry_function(module)
    attributes = [dict(known) for known in argument_attributes(entry)]
    for argument in attributes:
        name = argument["dist.name"]
        assert isinstance(name, StringAttr)
        if name.data in pins:
            text = f"#dist.sharding<@mesh, {pins[name.data]}>"
            argument["dist.sharding"] = Parser(context, text).parse_attribute()
    entry.arg_attrs = ArrayAttr([DictionaryAttr(a) for a in attributes])
    IlpShardPass(mesh=",".join(f"{axis}={size}" for axis, size in axes.items())).apply(Context(), module)
    return module


RANK = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from distir.backends.dtensor import parallelize, placements
from distir.backends.shardy.importing import parse

folder, rank = sys.argv[1:]
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=int(rank), world_size=2)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
x = torch.randn(6, 8)
expected = model(x)
module = parse(open(f"{folder}/program.mlir").read())
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
parallelize(model, module, mesh)
weight = model[0].weight
assert isinstance(weight, DTensor) and weight.placements == (Shard(0),) and weight.to_local().shape == (8, 8)
found = model(distribute_tensor(x, mesh, placements(module)["input"])).full_tensor()
torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
dist.destroy_process_group()
"""


@pytest.mark.long
def test_a_module_runs_by_dtensors_own_rules(tmp_path: Path) -> None:
    """The plan's placements by parameter name; DTensor propagates them through eager PyTorch."""
    import torch
    from torch import nn

    from distir.frontends.pytorch import import_step

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    pins = {"0.weight": '[{"tp"}, {}]', "0.bias": '[{"tp"}]', "2.weight": '[{}, {"tp"}]', "input": "[{}, {}]"}
    module = searched(import_step(model, (torch.randn(6, 8),)), {"tp": 2}, pins)
    (tmp_path / "program.mlir").write_text(str(module))
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path), str(rank)], stderr=subprocess.PIPE)
        for rank in (0, 1)
    ]
    errors = [rank.communicate(timeout=300)[1].decode() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
