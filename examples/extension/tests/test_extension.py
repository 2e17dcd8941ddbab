"""The extension as its users meet it: through an installed distir and an installed plug-in, no import of either's internals beyond the public names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from xdsl.dialects.builtin import ModuleOp

import distir
from distir.dialects.plugins import plugins
from distir.dialects.registry import program_context
from distir.frontends.onnx import import_model
from distir.frontends.text import parse_program
from distir.interpreters.equivalence import verify
from distir.interpreters.simulate import simulate
from distir.tools.distir import main

LAYERS = "8 16 32 4\n"
X = np.arange(8 * 16, dtype=np.float32).reshape(8, 16) / 128

TWO_DEVICES = """
builtin.module attributes {dist.devices = 2 : i64} {
  func.func @main(%x0: tensor<4x4xf32, #dist.on<0>> {dist.name = "x", dist.role = "input", dist.part = #dist.part<[0:4, 0:4] of [8, 4]>},
                  %x1: tensor<4x4xf32, #dist.on<1>> {dist.name = "x", dist.role = "input", dist.part = #dist.part<[4:8, 0:4] of [8, 4]>},
                  %s0: tensor<4xf32, #dist.on<0>> {dist.name = "s", dist.role = "parameter"}, %s1: tensor<4xf32, #dist.on<1>> {dist.name = "s", dist.role = "parameter"},
                  %w0: tensor<4x4xf32, #dist.on<0>> {dist.name = "w", dist.role = "parameter"}, %w1: tensor<4x4xf32, #dist.on<1>> {dist.name = "w", dist.role = "parameter"})
      -> (tensor<4x4xf32, #dist.on<0>> {dist.name = "y", dist.role = "output", dist.part = #dist.part<[4:8, 0:4] of [8, 4]>},
          tensor<4x4xf32, #dist.on<1>> {dist.name = "y", dist.role = "output", dist.part = #dist.part<[0:4, 0:4] of [8, 4]>}) {
    %y0 = example.norm_matmul %x0, %s0, %w0 epsilon 1.000000e-05 : (tensor<4x4xf32, #dist.on<0>>, tensor<4xf32, #dist.on<0>>, tensor<4x4xf32, #dist.on<0>>) -> tensor<4x4xf32, #dist.on<0>>
    %y1 = example.norm_matmul %x1, %s1, %w1 epsilon 1.000000e-05 : (tensor<4x4xf32, #dist.on<1>>, tensor<4xf32, #dist.on<1>>, tensor<4x4xf32, #dist.on<1>>) -> tensor<4x4xf32, #dist.on<1>>
    %r0, %r1 = "example.ring_exchange"(%y0, %y1) : (tensor<4x4xf32, #dist.on<0>>, tensor<4x4xf32, #dist.on<1>>) -> (tensor<4x4xf32, #dist.on<0>>, tensor<4x4xf32, #dist.on<1>>)
    func.return %r0, %r1 : tensor<4x4xf32, #dist.on<0>>, tensor<4x4xf32, #dist.on<1>>
  }
}
"""

SEQUENTIAL = """
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %s: tensor<4xf32> {dist.name = "s", dist.role = "parameter"}, %w: tensor<4x4xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<8x4xf32> {dist.name = "y", dist.role = "output"}) {
  %y = example.norm_matmul %x, %s, %w epsilon 1.000000e-05 : (tensor<8x4xf32>, tensor<4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}
"""


def parsed(text: str) -> ModuleOp:
    return parse_program(program_context(), text, "test")


@pytest.fixture
def layers(tmp_path: Path) -> str:
    (path := tmp_path / "model.layers").write_text(LAYERS)
    return str(path)


def test_it_is_found():
    ((name, package, added),) = [each for each in plugins() if each[0] == "example"]
    assert (name, package.split()[0]) == ("example", "distir-example")
    assert {"cost model", "dialect", "frontend", "kernel backend", "machine", "ONNX domain", "pass", "schedule"} <= {
        a.kind for a in added
    }


def test_a_plan_that_uses_all_of_it(layers: str, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """A file that only the plug-in reads, of operators that only it knows, under its cost model, machine and schedule."""
    best = str(tmp_path / "best.mlir")
    options = "--machine example-ring --devices 2 --cost-model roofline --schedules eager-1f1b --no-cache".split()
    assert main(["search", layers, *options, "-o", best]) == 0
    assert "eager-1f1b" in capsys.readouterr().out
    assert main(["import", layers, "-o", str(tmp_path / "model.mlir")]) == 0
    assert main(["verify", "--proof", str(tmp_path / "model.mlir"), best]) == 0
    assert "by 1 rules of operators, 0 of them probed" in capsys.readouterr().out


def test_workers_know_the_operations(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The operator by its torch kernel, the collective by its lowering, in processes of their own; and both are what the sequential program is."""
    for name, text in (("program.mlir", TWO_DEVICES), ("model.mlir", SEQUENTIAL)):
        (tmp_path / name).write_text(text)
    program, model = str(tmp_path / "program.mlir"), str(tmp_path / "model.mlir")
    assert main(["run", program, "--check", model]) == 0
    assert main(["verify", model, program]) == 0
    assert main(["verify", "--proof", "--ranks", model, program]) == 0
    assert "DIFFERS" not in capsys.readouterr().out


def test_a_collective_costs_its_slowest_message():
    module = parsed(TWO_DEVICES)
    found = simulate(module, "example-ring", "roofline")
    product = 4 * 4 * 4 * 2 / (1e12 * 0.9)
    moved = (3 * 16 + 4) * 4 / 1e11
    assert found.makespan_seconds == pytest.approx(max(product, moved) + 16 * 4 / 1e10, abs=2e-12)


def node(domain: str = "com.example", operator: str = "NormMatMul") -> onnx.ModelProto:
    """A model with one node of the domain, whose result goes into one of ONNX's."""
    nodes = [
        helper.make_node(operator, ["x", "s", "w"], ["n"], name="up", domain=domain, epsilon=0.25),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    parameters = {"s": np.ones(16, np.float32), "w": np.ones((16, 4), np.float32)}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 4])],
        [onnx.numpy_helper.from_array(value, name) for name, value in parameters.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22), helper.make_opsetid(domain, 1)])


def test_a_domain_of_onnx():
    module = import_model(node())
    assert [op.name for op in module.walk() if op.name.startswith(("example", "onnx"))] == [
        "example.norm_matmul",
        "onnx.Relu",
    ]
    outputs: dict[str, Any] = distir.interpreters.reference.run(module, {"x": X})
    expected = (X / np.sqrt((X * X).mean(-1, keepdims=True) + 0.25)).sum(-1, keepdims=True)
    np.testing.assert_allclose(outputs["y"], np.broadcast_to(expected, (8, 4)), rtol=1e-5)


def test_a_mistake_in_a_node_names_it():
    with pytest.raises(distir.DistirError, match=r"NormMatMul 'up'.*|node 'up'.*com.example has one operator"):
        import_model(node(operator="Norm"))
    with pytest.raises(distir.DistirError, match=r"unknown domain 'com.others'.*or register the domain"):
        import_model(node("com.others"))


def test_fused_and_not_are_equal():
    text = """
func.func @main(%x: tensor<8x4xf32> {dist.name = "x", dist.role = "input"}, %s: tensor<4xf32> {dist.name = "s", dist.role = "parameter"}, %w: tensor<4x4xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<8x4xf32> {dist.name = "y", dist.role = "output"}) {
  %n = "onnx.RMSNormalization"(%x, %s) <{axis = -1 : si64}> : (tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  %y = "onnx.MatMul"(%n, %w) : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  func.return %y : tensor<8x4xf32>
}
"""
    from distir_example.passes import ExampleFusePass

    fused = parsed(text)
    ExampleFusePass().apply(program_context(), fused)
    assert "norm_matmul" in str(fused)
    assert all(each.holds for each in verify(parsed(text), fused).comparisons)
