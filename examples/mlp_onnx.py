"""Writes a training step of DistIR's synthetic MLP as an ONNX file.

    python examples/mlp_onnx.py mlp.onnx --layers 4 --width 64 --batch 128

Each layer is `Relu(MatMul(x, w))`. The step is at the paper's granularity: forward, elementwise loss against the label,
one gradient operator per forward operator, and one SGD update per weight. ONNX has no such gradient operators, so these
are in the custom domain `distir.grad`. Metadata tells the roles that ONNX cannot: `dist.role:z` = `label`, and
`dist.update:<output>` = the weight that the output replaces. Nothing of distir is imported.
"""

import argparse
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

DOMAIN = "distir.grad"


def build(widths: Sequence[int], batch: int | str = "batch", learning_rate: float = 0.01, seed: int = 0) -> ModelProto:
    """The step for layers `widths[i] -> widths[i + 1]`.

    Inputs: x (batch, widths[0]), z (batch, widths[-1]) the label, n () the number of samples. Outputs: loss (batch,
    widths[-1]), and `<weight>_new` for each weight.
    """
    random = np.random.default_rng(seed)
    nodes: list[NodeProto] = []
    weights: list[TensorProto] = []

    def add(kind: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: float) -> None:
        name = f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, outputs, name=name, domain=domain, **attributes))  # type: ignore[arg-type]

    layers = len(widths) - 1
    for i in range(layers):
        scale = np.float32(np.sqrt(2 / widths[i]))
        weight = random.standard_normal((widths[i], widths[i + 1]), dtype=np.float32) * scale
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        add("MatMul", [f"a{i - 1}" if i else "x", f"w{i}"], [f"h{i}"])
        add("Relu", [f"h{i}"], [f"a{i}"])

    prediction = f"a{layers - 1}"
    add("Loss", [prediction, "z", "n"], ["loss"], DOMAIN)
    add("LossGrad", [prediction, "z", "n"], [f"da{layers - 1}"], DOMAIN)
    for i in reversed(range(layers)):
        add("ReluGrad", [f"h{i}", f"da{i}"], [f"dh{i}"], DOMAIN)
        add(
            "MatmulGrad",
            [f"a{i - 1}" if i else "x", f"w{i}", f"dh{i}"],
            [f"da{i - 1}" if i else "dx", f"dw{i}"],
            DOMAIN,
        )
    for i in range(layers):
        add("Sgd", [f"w{i}", f"dw{i}"], [f"w{i}_new"], DOMAIN, learning_rate=learning_rate)

    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        nodes,
        "mlp",
        [value("x", batch, widths[0]), value("z", batch, widths[-1]), value("n")],
        [value("loss", batch, widths[-1])] + [value(f"w{i}_new", widths[i], widths[i + 1]) for i in range(layers)],
        initializer=weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)])
    metadata = {"dist.role:z": "label"} | {f"dist.update:w{i}_new": f"w{i}" for i in range(layers)}
    helper.set_model_props(model, metadata)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a training step of a square MLP as an ONNX file.")
    parser.add_argument("output", help="the file to write")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--widths", type=int, nargs="+", help="widths of a network that is not square")
    parser.add_argument("--batch", type=int, help="left open unless given")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    widths = arguments.widths or [arguments.width] * (arguments.layers + 1)
    onnx.save(build(widths, arguments.batch or "batch", arguments.learning_rate, arguments.seed), arguments.output)


if __name__ == "__main__":
    main()
