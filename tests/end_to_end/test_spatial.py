"""A convolutional network whose images are cut by rows and columns: verified on two and four devices, and run on processes; and
images so large that searches find that cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.parser import Parser

from distir.backends.torch import run as run_processes
from distir.dialects.dist import Dist
from distir.dialects.onnx import Onnx
from distir.dialects.sharding import Gather, MeshOp, StrategyAttr, UseFactor
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.beam_shard import BeamShardPass
from distir.passes.distribution.options import rule_of
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass
from distir.tools.distir import main
from tests.slow_machine import written

NETWORK = """
func.func @main(%x: tensor<2x3x18x12xf32> {dist.name = "x", dist.role = "input"},
                %w: tensor<4x3x3x3xf32> {dist.name = "w", dist.role = "parameter"},
                %b: tensor<4xf32> {dist.name = "b", dist.role = "parameter"},
                %v: tensor<6x4x3x3xf32> {dist.name = "v", dist.role = "parameter"},
                %u: tensor<6x6x3x3xf32> {dist.name = "u", dist.role = "parameter"})
    -> (tensor<2x6x4x4xf32> {dist.name = "y", dist.role = "output"}) {
  %none = "onnx.NoValue"() <{value}> : () -> none
  %h = "onnx.Conv"(%x, %w, %b) <{pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64]}>
      : (tensor<2x3x18x12xf32>, tensor<4x3x3x3xf32>, tensor<4xf32>) -> tensor<2x4x18x12xf32>
  %a = "onnx.Relu"(%h) : (tensor<2x4x18x12xf32>) -> tensor<2x4x18x12xf32>
  %p, %i = "onnx.MaxPool"(%a)
      <{kernel_shape = [3 : si64, 3 : si64], pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64], strides = [2 : si64, 2 : si64]}>
      : (tensor<2x4x18x12xf32>) -> (tensor<2x4x9x6xf32>, none)
  %c = "onnx.Conv"(%p, %v, %none)
      <{dilations = [2 : si64, 1 : si64], pads = [2 : si64, 1 : si64, 2 : si64, 1 : si64]}>
      : (tensor<2x4x9x6xf32>, tensor<6x4x3x3xf32>, none) -> tensor<2x6x9x6xf32>
  %s = "onnx.Conv"(%c, %u, %none) <{pads = [0 : si64, 1 : si64, 0 : si64, 1 : si64], strides = [2 : si64, 1 : si64]}>
      : (tensor<2x6x9x6xf32>, tensor<6x6x3x3xf32>, none) -> tensor<2x6x4x6xf32>
  %y = "onnx.AveragePool"(%s) <{kernel_shape = [1 : si64, 3 : si64]}> : (tensor<2x6x4x6xf32>) -> tensor<2x6x4x4xf32>
  func.return %y : tensor<2x6x4x4xf32>
}
"""
ROWS, COLUMNS = 2, 3


def network(text: str = NETWORK) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, func.Func, Dist, Onnx):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def cut(axes: dict[str, int], dims: dict[str, int]) -> ModuleOp:
    """The network with every operation cut along these dims of its result."""
    module = network()
    ShardcombineAnnotatePass().apply(Context(), module)
    function = entry_function(module)
    for op in function.body.block.ops:
        if (rule := rule_of(op)) is None:
            continue
        factors = {c[0].dim: f for f, c in rule.combines.items() if isinstance(c[0], Gather)}
        choices = {axis: UseFactor(factors[dim]) for axis, dim in dims.items()}
        op.attributes["dist.strategy"] = StrategyAttr.of("mesh", choices)
    module.body.block.insert_op_before(MeshOp("mesh", axes), function)
    ApplyShardingPass().apply(Context(), module)
    return module


@pytest.mark.parametrize(
    ("axes", "dims"),
    [
        ({"a": 2}, {"a": ROWS}),
        ({"a": 4}, {"a": ROWS}),
        ({"a": 3}, {"a": COLUMNS}),
        ({"a": 2, "b": 2}, {"a": ROWS, "b": COLUMNS}),
    ],
    ids=["2", "4", "3-columns", "2x2"],
)
def test_verify(axes: dict[str, int], dims: dict[str, int], tmp_path: Path):
    sequential, distributed = tmp_path / "net.mlir", tmp_path / "cut.mlir"
    sequential.write_text(NETWORK)
    distributed.write_text(str(cut(axes, dims)))
    assert "dist.exchange" in distributed.read_text()
    assert main(["verify", str(sequential), str(distributed)]) == 0


def test_processes():
    rng = np.random.default_rng(0)
    arguments = entry_function(network()).body.block.args
    shapes = [argument.type.get_shape() for argument in arguments]  # type: ignore[attr-defined]
    inputs = {n: rng.standard_normal(s).astype(np.float32) for n, s in zip("xwbvu", shapes, strict=True)}
    expected = run(network(), inputs)["y"]
    got = run_processes(cut({"a": 3}, {"a": ROWS}), inputs)["y"]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


IMAGE, HALVED = "tensor<1x2x96x24xf32>", "tensor<1x2x48x12xf32>"
LARGE_IMAGE = f"""
func.func @main(%x: {IMAGE} {{dist.name = "x", dist.role = "input"}},
                %w: tensor<2x2x3x3xf32> {{dist.name = "w", dist.role = "parameter"}},
                %v: tensor<2x2x3x3xf32> {{dist.name = "v", dist.role = "parameter"}})
    -> ({HALVED} {{dist.name = "y", dist.role = "output"}}) {{
  %none = "onnx.NoValue"() <{{value}}> : () -> none
  %h = "onnx.Conv"(%x, %w, %none) <{{pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64]}}>
      : ({IMAGE}, tensor<2x2x3x3xf32>, none) -> {IMAGE}
  %a = "onnx.Relu"(%h) : ({IMAGE}) -> {IMAGE}
  %y = "onnx.Conv"(%a, %v, %none) <{{pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64], strides = [2 : si64, 2 : si64]}}>
      : ({IMAGE}, tensor<2x2x3x3xf32>, none) -> {HALVED}
  func.return %y : {HALVED}
}}
"""
"""One image of two channels: the batch and the channels do not divide over four devices."""


@pytest.mark.parametrize("search", [IlpShardPass, BeamShardPass])
def test_searches_cut_large_images(search: type[IlpShardPass | BeamShardPass], tmp_path: Path):
    """Both cut the rows of all operations, and the program computes what the network computes; on processes too."""
    module = network(LARGE_IMAGE)
    search(mesh="a=4", machine=written(tmp_path)).apply(Context(), module)
    for op in entry_function(module).body.block.ops:
        if (rule := rule_of(op)) is not None:
            rows = next(f for f, c in rule.combines.items() if isinstance(c[0], Gather) and c[0].dim == ROWS)
            assert op.attributes["dist.strategy"] == StrategyAttr.of("mesh", {"a": UseFactor(rows)})
    ApplyShardingPass().apply(Context(), module)
    sequential, distributed = tmp_path / "net.mlir", tmp_path / "cut.mlir"
    sequential.write_text(LARGE_IMAGE)
    distributed.write_text(str(module))
    assert main(["verify", str(sequential), str(distributed)]) == 0
    if search is IlpShardPass:
        rng = np.random.default_rng(0)
        shapes = {"x": (1, 2, 96, 24), "w": (2, 2, 3, 3), "v": (2, 2, 3, 3)}
        inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        expected, got = run(network(LARGE_IMAGE), inputs)["y"], run_processes(module, inputs)["y"]
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_training_step_on_one_large_image(tmp_path: Path):
    """Down to half the rows and back, against an image: the search cuts the rows of every convolution in both directions. Shards of
    the gradients by the weights have zeros around their rows of one operand, and their results are addends."""
    import torch
    from torch import nn

    from distir.frontends.pytorch import import_step, training_step

    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 3, 3, padding=1, stride=2), nn.Tanh(), nn.ConvTranspose2d(3, 2, 3, 2, 1, 1), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Conv2d(2, 2, 3, padding=1, bias=False))
    example = torch.randn(1, 2, 200, 24), torch.randn(1, 2, 200, 24)
    step = training_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    module = import_step(step, example)
    rng = np.random.default_rng(0)
    ports = arguments_of(entry_function(module))
    values = {port.name: rng.standard_normal(port.type.get_shape()).astype(np.float32) for port in ports}
    expected = run(module, values, dtype=np.float64)
    IlpShardPass(mesh="a=4", machine=written(tmp_path)).apply(Context(), module)
    convolutions = [op for op in module.walk() if op.name in ("aten.convolution", "aten.convolution_backward")]
    assert len(convolutions) == 8
    for op in convolutions:
        chosen, rule = op.attributes["dist.strategy"], rule_of(op)
        assert isinstance(chosen, StrategyAttr)
        assert rule is not None
        assert chosen.choices == {"a": UseFactor(str(rule.inputs[0][ROWS].factor))}
    ApplyShardingPass().apply(Context(), module)
    assert "dist.zeros" in str(module)
    for got in (run(module, values, dtype=np.float64), run_processes(module, values)):
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-5 * np.abs(value).max(), err_msg=name)


def test_a_training_step_that_pools_maxima(tmp_path: Path):
    """Rows of a pooling of maxima and of its gradient are cut, as those of the convolutions around it; many maxima are equal, and
    devices have uneven parts of what is pooled."""
    import torch
    from torch import nn

    from distir.frontends.pytorch import import_step, training_step

    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 2, 3, padding=1), nn.Hardtanh(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(2, 2, 3, padding=1)]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape) / 2)
    x, label = torch.randint(-2, 3, (1, 2, 198, 24)) / 2, torch.randn(1, 2, 99, 12)
    step = training_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    module = import_step(step, (x, label))
    values = {**weights_of(module), "input": x.numpy(), "label": label.numpy()}
    expected = run(module, values, dtype=np.float64)
    loss = nn.functional.mse_loss(model(x), label)
    np.testing.assert_allclose(expected["loss"], loss.detach(), rtol=1e-5)
    gradients = torch.autograd.grad(loss, [*model.parameters()])
    IlpShardPass(mesh="a=3", machine=written(tmp_path)).apply(Context(), module)
    pooled = {op.name: op for op in module.walk() if "pool" in op.name}
    assert [*pooled] == ["aten.max_pool2d", "aten.max_pool2d_backward"]
    for op in pooled.values():
        chosen, rule = op.attributes["dist.strategy"], rule_of(op)
        assert isinstance(chosen, StrategyAttr)
        assert rule is not None
        assert chosen.choices == {"a": UseFactor(str(rule.inputs[0][ROWS].factor))}
    ApplyShardingPass().apply(Context(), module)
    for got in (run(module, values, dtype=np.float64), run_processes(module, values)):
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-5 * np.abs(value).max(), err_msg=name)
        for (name, before), gradient in zip(model.named_parameters(), gradients, strict=True):
            after = (before - 0.1 * gradient).detach().numpy()
            np.testing.assert_allclose(got[name], after, rtol=0, atol=1e-5 * np.abs(after).max(), err_msg=name)
