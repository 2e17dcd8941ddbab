"""The generic form of every level is MLIR: a stock parser, with unregistered dialects allowed, takes it.

jaxlib, of the extra `models` that `make check-long` installs, ships MLIR's Python bindings."""

import runpy
from io import StringIO
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from distir.frontends.onnx import import_model
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
from distir.passes.outline_repeats import OutlineRepeatsPass
from distir.passes.project_to_rank import project
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass

EXAMPLES = Path(__file__).parents[3] / "examples"


def parse_as_mlir(module: ModuleOp) -> None:
    from jaxlib.mlir import ir

    stream = StringIO()
    Printer(stream, print_generic_format=True).print_op(module)
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        ir.Module.parse(stream.getvalue())


@pytest.mark.long
def test_the_generic_form_of_every_level_parses_in_mlir() -> None:
    build = runpy.run_path(str(EXAMPLES / "gpt2_onnx.py"))["build"]
    model = build(n_layer=2, d_model=32, n_head=4, vocab=64, n_ctx=32)
    module = import_model(model, {"input1": (4, 1, 8)})
    parse_as_mlir(module)
    OnnxFoldShapesPass().apply(Context(), module)
    OutlineRepeatsPass().apply(Context(), module)
    parse_as_mlir(module)
    ShardcombineAnnotatePass().apply(Context(), module)
    parse_as_mlir(module)
    DtpParallelizePass(dp=2, tp=2, pp=2, microbatches=2).apply(Context(), module)
    parse_as_mlir(module)
    for rank in (0, 7):
        parse_as_mlir(project(module, rank))


@pytest.mark.long
def test_training_steps_and_graphs_inside_operators_parse_in_mlir() -> None:
    build = runpy.run_path(str(EXAMPLES / "mlp_onnx.py"))["build"]
    parse_as_mlir(import_model(build([4, 8, 2], batch="batch")))
    fuzz = runpy.run_path(str(EXAMPLES.parent / "benchmarks" / "fuzz.py"))
    parse_as_mlir(import_model(fuzz["models"]()[2]))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_every_node_test_of_onnx_parses_in_mlir() -> None:
    from onnx.backend.test.loader import load_model_tests

    for case in load_model_tests(kind="node"):
        parse_as_mlir(import_model(case.model))


@pytest.mark.long
def test_what_is_not_mlir_is_refused() -> None:
    """The parser of these tests can fail."""
    from jaxlib.mlir import ir

    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        with pytest.raises(ir.MLIRError):
            ir.Module.parse('"onnx.Relu"(%0) : (tensor<?x-1xf32>) -> tensor<1xf32>')
