"""An ONNX model as a training step: three consecutive steps are those of the same model in eager PyTorch."""

import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper
from torch.nn import functional
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.backends.torch.training import LOSSES
from distir.dialects.errors import DistirError
from distir.frontends.onnx import import_model
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.model_names import model_name
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.tools.commands.train_option import OPTIMIZERS, TRAIN_HELP, train

Arrays = dict[str, np.ndarray]
Tensors = dict[str, torch.Tensor]
WIDTHS = (8, 16, 16, 4)


def mlp(*outputs: str) -> ModelProto:
    """Three layers; `outputs` are given beside the last, `logits`."""
    random = np.random.default_rng(0)
    initializers: list[TensorProto] = []
    nodes = []
    x = "x"
    for i in range(3):
        for name, shape in ((f"w{i}", WIDTHS[i : i + 2]), (f"b{i}", WIDTHS[i + 1 : i + 2])):
            initializers.append(numpy_helper.from_array(0.5 * random.standard_normal(shape).astype(np.float32), name))
        nodes.append(helper.make_node("Gemm", [x, f"w{i}", f"b{i}"], [f"h{i}" if i < 2 else "logits"], f"/up.{i}"))
        if i < 2:
            nodes.append(helper.make_node("Relu", [f"h{i}"], [f"a{i}"]))
            x = f"a{i}"
    nodes.append(helper.make_node("ReduceMean", ["logits"], ["mean"], keepdims=0))
    values = {"logits": ["batch", 4], "a1": ["batch", 16], "mean": []}
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, values[name]) for name in ("logits", *outputs)],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def mlp_eagerly(p: Tensors, x: torch.Tensor) -> torch.Tensor:
    for i in range(3):
        x = x @ p[f"w{i}"] + p[f"b{i}"]
        x = torch.relu(x) if i < 2 else x
    return x


def step_of_mlp(*words: str, outputs: tuple[str, ...] = ()) -> ModuleOp:
    return train(import_model(mlp(*outputs), {"x": (16, 8)}), "mlp.onnx", words)


def agrees_with_eager(
    step: ModuleOp,
    loss: Callable[[Tensors, Tensors], torch.Tensor],
    optimizer: Callable[[Any], torch.optim.Optimizer],
    inputs: Callable[[np.random.Generator], Arrays],
) -> None:
    """In double precision; every parameter that comes back is trained."""
    step.verify()
    state = {name: np.asarray(value) for name, value in weights_of(step).items()}
    trained = [p.name for p in results_of(entry_function(step)) if p.role == "parameter"]
    ports = arguments_of(entry_function(step))
    held = {p.name: torch.from_numpy(state[p.name].astype(np.float64)) for p in ports if p.role == "parameter"}
    made = optimizer([held[name].requires_grad_() for name in trained])
    random = np.random.default_rng(1)
    for _ in range(3):
        batch = inputs(random)
        results = run(step, state | batch, dtype=np.float64)
        made.zero_grad()
        expected = loss(held, {name: torch.from_numpy(array) for name, array in batch.items()})
        expected.backward()
        made.step()
        np.testing.assert_allclose(results["loss"], expected.item(), rtol=1e-9)
        for name in trained:
            np.testing.assert_allclose(results[name], held[name].detach().numpy(), rtol=1e-9, atol=1e-9, err_msg=name)
        state |= {name: value for name, value in results.items() if name != "loss"}


def test_three_steps_of_an_mlp() -> None:
    step = step_of_mlp("loss=cross_entropy:label_smoothing=0.1", "optimizer=adamw:lr=1e-2,betas=0.9,0.95")
    agrees_with_eager(
        step,
        lambda p, t: functional.cross_entropy(mlp_eagerly(p, t["x"]), t["label"], label_smoothing=0.1),
        lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.9, 0.95)),
        lambda random: {"x": random.standard_normal((16, 8)), "label": random.integers(0, 4, 16)},
    )
    roles = {p.name: p.role for p in arguments_of(entry_function(step))}
    assert [name for name, role in roles.items() if role != "state"] == [
        "x",
        *(f"{k}{i}" for i in range(3) for k in "wb"),
        "label",
    ]
    assert "state.w0.exp_avg" in roles
    assert {p.name for p in results_of(entry_function(step))} == {"loss"} | {
        n for n, r in roles.items() if r in ("parameter", "state")
    }


def test_state_starts_where_the_optimizer_starts_it() -> None:
    """Rprop's step sizes start at the learning rate, as PyTorch documents them."""
    step = step_of_mlp("loss=mse_loss", "optimizer=rprop:lr=0.02")
    np.testing.assert_allclose(weights_of(step)["state.w0.step_size"], np.full((8, 16), 0.02), rtol=1e-6)
    agrees_with_eager(
        step,
        lambda p, t: functional.mse_loss(mlp_eagerly(p, t["x"]), t["label"]),
        lambda p: torch.optim.Rprop(p, lr=float(np.float32(0.02))),
        lambda random: {"x": random.standard_normal((16, 8)), "label": random.standard_normal((16, 4))},
    )


def gpt2_eagerly(p: Tensors, ids: torch.Tensor, layers: int, heads: int) -> torch.Tensor:
    """The model of examples/gpt2_onnx.py, with its constants in single precision."""
    single = lambda number: float(np.float32(number))  # noqa: E731

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = p[f"{name}.weight"], p[f"{name}.bias"]
        return functional.layer_norm(x, x.shape[-1:], weight, bias, eps=single(1e-5))

    def dense(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def gelu(x: torch.Tensor) -> torch.Tensor:
        inner = single(np.sqrt(2 / np.pi)) * (x + single(0.044715) * x**3)
        return 0.5 * x * (1 + torch.tanh(inner))

    batch, _, length = ids.shape
    x = p["wte.weight"][ids[:, 0]] + p["wpe.weight"][:length]
    for layer in range(layers):
        name = f"h.{layer}"
        joint = dense(norm(x, f"{name}.ln_1"), f"{name}.attn.c_attn")
        q, k, v = (part.reshape(batch, length, heads, -1).transpose(1, 2) for part in joint.chunk(3, -1))
        scores = q @ k.mT / single(q.shape[-1] ** 0.5)
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        mixed = torch.where(seen, scores, -1e4).softmax(-1) @ v
        x = x + dense(mixed.transpose(1, 2).reshape(x.shape), f"{name}.attn.c_proj")
        x = x + dense(gelu(dense(norm(x, f"{name}.ln_2"), f"{name}.mlp.c_fc")), f"{name}.mlp.c_proj")
    return norm(x, "ln_f")[:, None]


def test_three_steps_of_gpt2() -> None:
    build = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "gpt2_onnx.py"))["build"]
    module = import_model(build(n_layer=2, d_model=24, n_head=6, vocab=97, n_ctx=16), {"input1": (2, 1, 8)})
    step = train(module, "gpt2.onnx", ["loss=mse_loss", "optimizer=sgd:lr=0.1,momentum=0.9"])
    agrees_with_eager(
        step,
        lambda p, t: functional.mse_loss(gpt2_eagerly(p, t["input1"], 2, 6), t["label"]),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda random: {"input1": random.integers(0, 97, (2, 1, 8)), "label": random.standard_normal((2, 1, 8, 24))},
    )
    constants = [p.name for p in arguments_of(entry_function(step)) if p.role == "buffer"]
    assert constants  # the masks, which nothing trains
    assert weights_of(step).keys() >= set(constants)


@pytest.mark.parametrize("plan", [{"dp": 2, "tp": 2}, {"pp": 2, "microbatches": 2}], ids=str)
@pytest.mark.parametrize("loss", ["cross_entropy", "mse_loss"])
def test_a_distributed_step_is_equal(loss: str, plan: dict[str, int]) -> None:
    step = step_of_mlp(f"loss={loss}", "optimizer=sgd:lr=0.1,momentum=0.9")
    random = np.random.default_rng(2)
    label = random.integers(0, 4, 16) if loss == "cross_entropy" else random.standard_normal((16, 4))
    values = {n: np.asarray(v) for n, v in weights_of(step).items()} | {
        "x": random.standard_normal((16, 8)),
        "label": label,
    }
    expected = run(step, values, dtype=np.float64)
    DtpParallelizePass(**plan).apply(Context(), step)
    found = run(step, values, dtype=np.float64)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.long
def test_a_step_of_gpt2_is_equal_under_every_plan() -> None:
    build = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "gpt2_onnx.py"))["build"]
    module = import_model(build(n_layer=2, d_model=24, n_head=6, vocab=97, n_ctx=16), {"input1": (4, 1, 8)})
    step = train(module, "gpt2.onnx", ["loss=mse_loss", "optimizer=sgd:lr=0.1,momentum=0.9"])
    random = np.random.default_rng(2)
    values = {n: np.asarray(v) for n, v in weights_of(step).items()} | {
        "input1": random.integers(0, 97, (4, 1, 8)),
        "label": random.standard_normal((4, 1, 8, 24)),
    }
    expected = run(step, values, dtype=np.float64)
    for plan in ({"dp": 2, "tp": 2}, {"pp": 2, "microbatches": 4}, {"dp": 2, "tp": 2, "pp": 2}):
        distributed = step.clone()
        DtpParallelizePass(**plan).apply(Context(), distributed)
        found = run(distributed, values, dtype=np.float64)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-12, err_msg=f"{plan} {name}")


def test_a_result_of_the_model_is_the_loss() -> None:
    step = step_of_mlp("loss=mean", "optimizer=sgd:lr=1", "freeze=w0", "freeze=b0", outputs=("mean",))
    agrees_with_eager(
        step,
        lambda p, t: mlp_eagerly(p, t["x"]).mean(),
        lambda p: torch.optim.SGD(p, lr=1),
        lambda random: {"x": random.standard_normal((16, 8))},
    )
    assert [p.name for p in results_of(entry_function(step))] == ["loss", "w1", "b1", "w2", "b2"]


def test_a_loss_of_one_of_several_results() -> None:
    step = step_of_mlp("loss=l1_loss:output=a1", "optimizer=sgd", outputs=("a1",))
    label = next(p for p in arguments_of(entry_function(step)) if p.name == "label")
    assert (label.role, str(label.type)) == ("label", "tensor<16x16xf32>")


def test_classes_may_lie_in_any_dim() -> None:
    step = step_of_mlp("loss=cross_entropy:dim=0", "optimizer=sgd")
    label = next(p for p in arguments_of(entry_function(step)) if p.name == "label")
    assert str(label.type) == "tensor<4xi64>"


MISTAKES = {
    "no loss": (["optimizer=sgd"], r"--train needs loss=\.\.\. once, got 0"),
    "two optimizers": (["loss=mse_loss", "optimizer=sgd", "optimizer=adam"], r"needs optimizer=\.\.\. once, got 2"),
    "no key": (["mlp.onnx"], r"--train mlp\.onnx: expected loss=.*MODEL and other options come before --train"),
    "unknown loss": (["loss=mse", "optimizer=sgd"], r"loss=mse: expected one of mse_loss, .* which gives logits"),
    "unknown option": (["loss=mse_loss:beta=1", "optimizer=sgd"], r"loss=mse_loss has no option 'beta'"),
    "wrong value": (["loss=huber_loss:delta=no", "optimizer=sgd"], r"delta=no: expected a float or int"),
    "no scalar": (["loss=mse_loss:reduction=none", "optimizer=sgd"], r"reduction=none: expected mean or sum"),
    "no result": (["loss=mse_loss:output=y", "optimizer=sgd"], r"has no result 'y', it gives logits"),
    "large result": (["loss=logits", "optimizer=sgd"], r"expected a result of one element, it has shape \[16, 4\]"),
    "dim": (["loss=nll_loss:dim=2", "optimizer=sgd"], r"dim=2 is outside of the result's shape \[16, 4\]"),
    "unknown optimizer": (["loss=mse_loss", "optimizer=adamv"], r"optimizer=adamv: expected one of .*did you mean adam\?"),
    "optimizer's option": (["loss=mse_loss", "optimizer=sgd:beta=1"], r"optimizer=sgd has no option 'beta'"),
    "optimizer's value": (["loss=mse_loss", "optimizer=sgd:lr=-1"], r"optimizer=sgd:lr=-1: Invalid learning rate"),
    "no value": (["loss=mse_loss", "optimizer=sgd:lr"], r"expected optimizer=NAME:OPTION=VALUE,.* at 'lr'"),
    "twice": (["loss=mse_loss", "optimizer=sgd:lr=1,lr=2"], r"option 'lr' is given twice"),
    "freeze": (["loss=mse_loss", "optimizer=sgd", "freeze=h.*"], r"freeze=h\.\*: mlp\.onnx has no parameter"),
    "nothing to train": (["loss=mse_loss", "optimizer=sgd", "freeze=*"], r"mlp\.onnx has no parameter to train"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line(mistake: str) -> None:
    words, message = MISTAKES[mistake]
    with pytest.raises(DistirError, match=message) as raised:
        step_of_mlp(*words)
    assert "\n" not in str(raised.value)


def test_several_results_need_a_name() -> None:
    with pytest.raises(
        DistirError, match=r"gives logits, a1: say which the loss scores, as in loss=mse_loss:output=logits"
    ):
        step_of_mlp("loss=mse_loss", "optimizer=sgd", outputs=("a1",))


def test_a_training_step_is_not_trained() -> None:
    build = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "mlp_onnx.py"))["build"]
    with pytest.raises(DistirError, match=r"mlp\.onnx updates 'w0': it is a training step already"):
        train(import_model(build([8, 4], batch=2)), "mlp.onnx", ["loss=mse_loss", "optimizer=sgd"])


def test_an_integer_parameter_is_refused() -> None:
    graph = helper.make_graph(
        [helper.make_node("Cast", ["n"], ["c"], to=TensorProto.FLOAT), helper.make_node("Mul", ["x", "c"], ["y"])],
        "scaled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]), helper.make_tensor_value_info("n", TensorProto.INT64, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    helper.set_model_props(model, {"dist.role:n": "parameter"})
    with pytest.raises(
        DistirError, match=r"parameter 'n' is torch.int64, which has no gradient: leave it with freeze=n"
    ):
        train(import_model(model), "m.onnx", ["loss=mse_loss", "optimizer=sgd"])


def model_of(nodes: list[Any], weights: dict[str, np.ndarray], shape: list[int]) -> ModelProto:
    """From `x` to `y`."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, initializers), opset_imports=[helper.make_opsetid("", 21)]
    )


def test_a_recurrent_layer_and_a_loop_are_trained() -> None:
    """Three steps of a layer, then its last state is multiplied three times."""
    random = np.random.default_rng(0)
    weights = {
        name: 0.5 * random.standard_normal(s).astype(np.float32)
        for name, s in (("w", (1, 4, 2)), ("r", (1, 4, 4)), ("v", (4, 4)))
    }
    body = helper.make_graph(
        [helper.make_node("MatMul", ["s", "v"], ["m"]), helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, []), ("go", 9, []), ("s", 1, [5, 4]))],
        [helper.make_tensor_value_info("on", 9, []), helper.make_tensor_value_info("m", 1, [5, 4])],
    )
    nodes = [
        helper.make_node("RNN", ["x", "w", "r"], ["", "h"], hidden_size=4, activations=["Relu"]),
        helper.make_node("Squeeze", ["h"], ["last"]),
        helper.make_node("Loop", ["count", "", "last"], ["y"], body=body),
    ]
    model = model_of(nodes, {**weights, "count": np.array(3)}, [3, 5, 2])

    def loss(p: Tensors, given: Tensors) -> torch.Tensor:
        h = torch.zeros(5, 4, dtype=torch.float64)
        for x in given["x"]:
            h = torch.relu(x @ p["w"][0].T + h @ p["r"][0].T)
        return functional.mse_loss(h @ p["v"] @ p["v"] @ p["v"], given["label"])

    step = train(import_model(model), "rnn.onnx", ["loss=mse_loss", "optimizer=sgd:lr=0.1"])
    agrees_with_eager(
        step,
        loss,
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda r: {"x": r.standard_normal((3, 5, 2)), "label": r.standard_normal((5, 4))},
    )


def test_an_operator_without_a_torch_definition_is_refused_by_name() -> None:
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["h"]), helper.make_node("Hardmax", ["h"], ["y"])],
        "hard",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(np.ones(4, np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(DistirError, match=r"onnx\.Hardmax in @main: .*no definition in torch") as raised:
        train(import_model(model), "m.onnx", ["loss=mse_loss", "optimizer=sgd"])
    assert "\n" not in str(raised.value)


def test_the_help_lists_every_loss() -> None:
    assert all(name in TRAIN_HELP for name in LOSSES)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_has_a_program(name: str) -> None:
    assert name.lower() in TRAIN_HELP
    step_of_mlp("loss=mse_loss", f"optimizer={name}").verify()


def test_the_command_writes_a_step(tmp_path: Path) -> None:
    from distir.tools.distir import main

    onnx.save(mlp(), tmp_path / "mlp.onnx")
    train_it = ["--train", "loss=mse_loss", "optimizer=sgd:lr=0.1"]
    assert (
        main(["import", str(tmp_path / "mlp.onnx"), "--shape", "x=16,8", "-o", str(tmp_path / "step.mlir"), *train_it])
        == 0
    )
    assert main(["verify", str(tmp_path / "step.mlir"), str(tmp_path / "step.mlir")]) == 0


def test_nodes_name_forward_and_backward():
    """The product of each node, and the two products of its backward part."""
    step = step_of_mlp("loss=cross_entropy", "optimizer=sgd:lr=0.1")
    named = Counter(model_name(op) for op in step.walk() if op.name in ("aten.mm", "aten.addmm"))
    assert named == {"/up.0": 2, "/up.1": 3, "/up.2": 3}  # nobody asks for the gradient of x
