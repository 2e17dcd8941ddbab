"""Writes GPT-2 as an ONNX file, with the dynamic shape arithmetic of the export that DistIR was evaluated on.

    python examples/gpt2_onnx.py gpt2.onnx --n-layer 2 --d-model 64 --n-head 4 --vocab 512 --n-ctx 64

The graph is that of transformers 2.x's GPT2Model traced at opset 10 (`gpt2-10.onnx` of the ONNX model zoo): one input
`input1` of shape (batch, 1, sequence) with open batch and sequence, one output `output1` of shape (batch, 1, sequence,
d_model), and between them `Shape -> Gather -> Unsqueeze -> Concat -> Reshape` wherever PyTorch had a view. Weights are
random (normal, 0.02), and each layer has its causal mask as a buffer. Nothing of distir is imported.
"""

import argparse
from math import sqrt

import numpy as np
import onnx
from numpy.typing import ArrayLike, DTypeLike
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper


class Gpt2Builder:
    """Collects the nodes and initializers of one model; values are named by number, as a traced graph's are."""

    def __init__(self, d_model: int, n_head: int, vocab: int, n_ctx: int, seed: int) -> None:
        self.d_model, self.n_head, self.vocab, self.n_ctx = d_model, n_head, vocab, n_ctx
        self.random = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []

    # Nodes and values.

    def op(self, kind: str, *inputs: str, output: str | None = None, **attributes: object) -> str:
        name = output or str(len(self.nodes) + 3)
        self.nodes.append(
            helper.make_node(kind, inputs, [name], name=f"{kind}_{len(self.nodes)}", **attributes)  # type: ignore[arg-type]
        )
        return name

    def constant(self, value: ArrayLike, dtype: DTypeLike = np.int64) -> str:
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def initializer(self, name: str, value: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        return self.initializer(name, self.random.standard_normal(shape, dtype=np.float32) * np.float32(0.02))

    def filled(self, name: str, value: float, *shape: int) -> str:
        return self.initializer(name, np.full(shape, value, np.float32))

    def folded(self, value: int) -> str:
        """A one-element shape that the exporter folded into an integer initializer (`%3114` in DistIR's Figure 4)."""
        return self.initializer(f"shape.{len(self.initializers)}", np.array([value], np.int64))

    # Shape arithmetic.

    def size(self, x: str, axis: int) -> str:
        """The size of one dimension, a scalar."""
        return self.op("Gather", self.op("Shape", x), self.constant(axis), axis=0)

    def vector(self, scalar: str) -> str:
        return self.op("Unsqueeze", scalar, axes=[0])

    def view(self, x: str, *sizes: str, output: str | None = None) -> str:
        """Reshape to sizes that are one-element vectors."""
        return self.op("Reshape", x, self.op("Concat", *sizes, axis=0), output=output)

    # Layers.

    def layer_norm(self, x: str, name: str) -> str:
        weight, bias = self.filled(f"{name}.weight", 1, self.d_model), self.filled(f"{name}.bias", 0, self.d_model)
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        variance = self.op("ReduceMean", self.op("Pow", centred, self.constant(2, np.float32)), axes=[-1])
        deviation = self.op("Sqrt", self.op("Add", variance, self.constant(1e-5, np.float32)))
        return self.op("Add", self.op("Mul", self.op("Div", centred, deviation), weight), bias)

    def conv1d(self, x: str, name: str, inputs: int, outputs: int) -> str:
        """GPT-2's dense layer: flatten to two dimensions, Gemm, and back."""
        weight, bias = self.weight(f"{name}.weight", inputs, outputs), self.weight(f"{name}.bias", outputs)
        batch, sequence = self.size(x, 0), self.size(x, 1)
        flat = self.view(x, self.folded(-1), self.vector(self.size(x, 2)))
        product = self.op("Gemm", flat, weight, bias, alpha=1.0, beta=1.0)
        return self.view(product, self.vector(batch), self.vector(sequence), self.folded(outputs))

    def split_heads(self, x: str, permutation: list[int]) -> str:
        batch, sequence, width = (self.size(x, axis) for axis in range(3))
        head = self.op("Cast", self.op("Div", width, self.constant(self.n_head)), to=TensorProto.INT64)
        heads = self.view(x, self.vector(batch), self.vector(sequence), self.folded(self.n_head), self.vector(head))
        return self.op("Transpose", heads, perm=permutation)

    def masked(self, scores: str, name: str) -> str:
        """Scores where a position may look, -10000 elsewhere; the mask is cut from a buffer of n_ctx positions."""
        queries, keys = self.size(scores, 2), self.size(scores, 3)
        buffer = np.tril(np.ones((self.n_ctx, self.n_ctx), np.float32)).reshape(1, 1, self.n_ctx, self.n_ctx)
        mask = self.initializer(f"{name}.bias", buffer)
        end, step = self.vector(keys), self.constant([1])
        mask = self.op("Slice", mask, self.vector(self.op("Sub", keys, queries)), end, self.folded(2), step)
        mask = self.op("Slice", mask, self.folded(0), end, self.folded(3), step)
        hidden = self.op("Mul", self.op("Sub", self.constant(1, np.float32), mask), self.constant(1e4, np.float32))
        return self.op("Sub", self.op("Mul", scores, mask), hidden)

    def attention(self, x: str, name: str) -> str:
        d = self.d_model
        joint = self.conv1d(x, f"{name}.c_attn", d, 3 * d)
        parts = [f"{name}.{part}" for part in ("query", "key", "value")]
        self.nodes.append(helper.make_node("Split", [joint], parts, name=f"{name}.split", axis=2, split=[d, d, d]))
        query = self.split_heads(parts[0], [0, 2, 1, 3])
        key = self.split_heads(parts[1], [0, 2, 3, 1])
        value = self.split_heads(parts[2], [0, 2, 1, 3])
        scale = self.constant(sqrt(d // self.n_head), np.float32)
        scores = self.masked(self.op("Div", self.op("MatMul", query, key), scale), name)
        heads = self.op("MatMul", self.op("Softmax", scores, axis=3), value)
        heads = self.op("Transpose", heads, perm=[0, 2, 1, 3])
        batch, sequence, count, head = (self.size(heads, axis) for axis in range(4))
        width = self.op("Mul", count, head)
        merged = self.view(heads, self.vector(batch), self.vector(sequence), self.vector(width))
        return self.conv1d(merged, f"{name}.c_proj", d, d)

    def gelu(self, x: str) -> str:
        """The tanh approximation, spelled out."""
        cube = self.op("Mul", self.op("Pow", x, self.constant(3, np.float32)), self.constant(0.044715, np.float32))
        inner = self.op("Mul", self.op("Add", x, cube), self.constant(sqrt(2 / np.pi), np.float32))
        gate = self.op("Add", self.op("Tanh", inner), self.constant(1, np.float32))
        return self.op("Mul", self.op("Mul", x, self.constant(0.5, np.float32)), gate)

    def mlp(self, x: str, name: str) -> str:
        hidden = self.conv1d(x, f"{name}.c_fc", self.d_model, 4 * self.d_model)
        return self.conv1d(self.gelu(hidden), f"{name}.c_proj", 4 * self.d_model, self.d_model)

    def embedding(self, ids: str) -> str:
        """Token and position embeddings, summed; positions are counted with ConstantOfShape and NonZero."""
        tokens, positions = (
            self.weight("wte.weight", self.vocab, self.d_model),
            self.weight("wpe.weight", self.n_ctx, self.d_model),
        )
        sequence = self.size(ids, 2)
        flat = self.view(ids, self.folded(-1), self.vector(sequence))
        one = numpy_helper.from_array(np.array([1], np.int64))
        ones = self.op("ConstantOfShape", self.vector(sequence), value=one)
        counted = self.op("Transpose", self.op("NonZero", ones), perm=[1, 0])
        counted = self.op("Add", self.op("Squeeze", counted, axes=[1]), self.folded(0))
        counted = self.op("Unsqueeze", self.op("Cast", counted, to=TensorProto.INT64), axes=[0])
        index = self.view(counted, self.folded(-1), self.vector(self.size(ids, 2)))
        return self.op("Add", self.op("Gather", tokens, flat), self.op("Gather", positions, index))

    def model(self, n_layer: int) -> None:
        """All layers, from `input1` to `output1`."""
        sizes = [self.size("input1", axis) for axis in range(3)]
        x = self.embedding("input1")
        for layer in range(n_layer):
            name = f"h.{layer}"
            x = self.op("Add", x, self.attention(self.layer_norm(x, f"{name}.ln_1"), f"{name}.attn"))
            x = self.op("Add", x, self.mlp(self.layer_norm(x, f"{name}.ln_2"), f"{name}.mlp"))
        x = self.layer_norm(x, "ln_f")
        self.view(x, *(self.vector(size) for size in sizes), self.vector(self.size(x, 2)), output="output1")


def build(
    n_layer: int = 12, d_model: int = 768, n_head: int = 12, vocab: int = 50257, n_ctx: int = 1024, seed: int = 0
) -> ModelProto:
    """GPT-2 without the output head, as traced; the defaults are GPT-2 small."""
    if d_model % n_head:
        raise ValueError(f"d_model {d_model} is not a multiple of n_head {n_head}")
    g = Gpt2Builder(d_model, n_head, vocab, n_ctx, seed)
    g.model(n_layer)
    graph = helper.make_graph(
        g.nodes,
        "gpt2",
        [helper.make_tensor_value_info("input1", TensorProto.INT64, ["batch", 1, "sequence"])],
        [helper.make_tensor_value_info("output1", TensorProto.FLOAT, ["batch", 1, "sequence", d_model])],
        initializer=g.initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=6)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write GPT-2 as an ONNX file.")
    parser.add_argument("output", help="the file to write")
    parser.add_argument("--n-layer", type=int, default=12)
    parser.add_argument("--d-model", type=int, default=768)
    parser.add_argument("--n-head", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--n-ctx", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    arguments = vars(parser.parse_args())
    onnx.save(build(**{key: value for key, value in arguments.items() if key != "output"}), arguments["output"])


if __name__ == "__main__":
    main()
