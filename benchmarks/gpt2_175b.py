"""GPT-2 175B as a level 1 program, shapes only: the graph of `examples/gpt2_onnx.py` at 96 layers of width 12288 in f16, 8 tokens
a sequence, whose weights are inputs with the role of parameters, so that no value is ever made. The batch is open.

    python -m benchmarks.gpt2_175b OUT.mlir
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from onnx import ModelProto, TensorProto, helper
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.onnx import import_model

sys.path.append(str(Path(__file__).parents[1] / "examples"))

from gpt2_onnx import Gpt2Builder

SEQUENCE = 8


class ShapesOnly(Gpt2Builder):
    """Half precision, and floating-point initializers become graph inputs."""

    def __init__(self, d_model: int, n_head: int, vocab: int, n_ctx: int):
        super().__init__(d_model, n_head, vocab, n_ctx, seed=0)
        self.parameters: dict[str, tuple[int, ...]] = {}

    def constant(self, value: ArrayLike, dtype: DTypeLike = np.int64) -> str:
        return super().constant(value, np.float16 if dtype == np.float32 else dtype)

    def initializer(self, name: str, value: np.ndarray) -> str:
        return super().initializer(name, value) if value.dtype.kind == "i" else self.weight(name, *value.shape)

    def weight(self, name: str, *shape: int) -> str:
        self.parameters[name] = shape
        return name


def gpt2_onnx(n_layer: int, d_model: int, n_head: int, vocab: int = 50257, n_ctx: int = SEQUENCE) -> ModelProto:
    """The model, with an open batch."""
    g = ShapesOnly(d_model, n_head, vocab, n_ctx)
    g.model(n_layer)
    ids = helper.make_tensor_value_info("input1", TensorProto.INT64, ["batch", 1, SEQUENCE])
    weights = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, shape) for n, shape in g.parameters.items()]
    output = helper.make_tensor_value_info("output1", TensorProto.FLOAT16, ["batch", 1, SEQUENCE, d_model])
    graph = helper.make_graph(g.nodes, "gpt2", [ids, *weights], [output], initializer=g.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=6)
    for name in g.parameters:
        entry = model.metadata_props.add()
        entry.key, entry.value = f"dist.role:{name}", "parameter"
    return model


def level1(n_layer: int = 96, d_model: int = 12288, n_head: int = 96) -> ModuleOp:
    """The program; the defaults are GPT-2 175B's."""
    return cast(ModuleOp, import_model(gpt2_onnx(n_layer, d_model, n_head)))


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.gpt2_175b", description="Writes GPT-2 175B as a level 1 program, shapes only."
    )
    parser.add_argument("output", type=Path, metavar="OUT.mlir")
    parser.parse_args().output.write_text(str(level1()))


if __name__ == "__main__":
    main()
