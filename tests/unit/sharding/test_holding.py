"""Functions that hold parameters stand for those that take them as arguments."""

import pytest
from onnx import TensorProto, helper
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.frontends.onnx import import_model
from distir.interpreters.entry import entry_function
from distir.interpreters.held import HeldOp, NeedsArguments
from distir.interpreters.machines import load_machine
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.distribution.inline import inline_calls
from distir.passes.distribution.tensor import tensor_axis
from distir.passes.distribution.tensor.choices import TensorChoices
from distir.passes.distribution.tensor.holding import holding, own_parameters, without_addends
from distir.passes.distribution.tensor.tensor_axis import Variants
from distir.passes.dtp_parallelize import prepare
from distir.passes.search.configurations import Configuration
from distir.passes.search.search import Search
from distir.passes.structure import functions
from examples import gpt2_onnx, mlp_onnx

LAYERS = 4


def gpt2() -> ModuleOp:
    """Layers without gradients, each with its own parameters."""
    built = gpt2_onnx.build(n_layer=LAYERS, d_model=16, n_head=4, vocab=24, n_ctx=8)
    module = import_model(built, {"input1": (8, 1, 4)})
    prepare(Context(), module)
    return module


def everything(module: ModuleOp) -> dict[str, frozenset[int]]:
    """What functions can hold where nothing is cut."""
    return without_addends(module, own_parameters(module), {})


def held(module: ModuleOp) -> dict[str, list[HeldOp]]:
    found = {n: [op for op in f.body.block.ops if isinstance(op, HeldOp)] for n, f in functions(module).items()}
    return {name: ops for name, ops in found.items() if ops}


def test_parameters_of_layers_leave_the_entry() -> None:
    module = gpt2()
    entry = entry_function(module)
    ((name, positions),) = everything(module).items()
    narrow = holding(module, {name: positions})
    narrow.verify()
    inside = entry_function(narrow)
    assert len(entry.body.block.args) - len(inside.body.block.args) == LAYERS * len(positions)
    assert len(inside.function_type.inputs) == len(inside.body.block.args)
    arguments = functions(module)[name].body.block.args
    assert [op.output.type for op in held(narrow)[name]] == [arguments[i].type for i in sorted(positions)]
    assert not held(module), "the module that it was made of is as it was"


def test_what_a_step_updates_is_not_held() -> None:
    module = import_model(mlp_onnx.build([16] * 5, batch=24))
    prepare(Context(), module)
    assert not everything(module)


def test_functions_that_hold_parameters_are_not_inlined() -> None:
    module = gpt2()
    narrow = holding(module, everything(module))
    with pytest.raises(NeedsArguments, match="holds parameters"):
        inline_calls(narrow, entry_function(narrow))


@pytest.mark.parametrize(("dp", "tp", "pp", "microbatches"), [(1, 1, 4, 2), (2, 2, 2, 2), (1, 4, 1, 1), (1, 1, 8, 2)])
def test_figures(dp: int, tp: int, pp: int, microbatches: int) -> None:
    """With addends made of parameters (biases of layers that are cut by their inputs), which the entry makes once, and in stages that
    begin inside layers, whose functions are inlined."""
    module = gpt2()
    search = Search(lambda _: module.clone(), load_machine("dgx-2"), "analytic", 1 << 50)
    configuration = Configuration(8, dp, tp, pp, microbatches, "1f1b")
    narrow, whole = search.evaluate(configuration), search.evaluate_whole(configuration)
    assert narrow == whole
    assert narrow.figures is not None


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("model", ["gpt2", "chain", "weights before the batch"])
def test_the_tensor_axis_is_chosen_as_on_programs_with_all_arguments(
    model: str, tp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transformer's layers are cut alike, those of the chain alternately."""
    module = gpt2() if model == "gpt2" else chain(weights_first=model != "chain")
    batch = parse_batch("", entry_function(module))
    machine, narrow, wide = load_machine("dgx-2"), TensorChoices(), TensorChoices()
    Variants(module, batch, 2, 1, machine).choose(tp, narrow)
    monkeypatch.setattr(tensor_axis, "own_parameters", lambda _: {})
    Variants(module, batch, 2, 1, machine).choose(tp, wide)
    assert narrow.alternating == wide.alternating == {tp: model != "gpt2"}
    assert narrow.by_site == wide.by_site
    assert not any(not holds for *_, holds in narrow.plans), "it was chosen on programs whose functions hold parameters"
    assert [holds for *_, holds in wide.plans] == [False]


def chain(weights_first: bool) -> ModuleOp:
    """Equal layers without gradients. The batch is the first argument or the last, as the label of a training step is."""
    tensor = helper.make_tensor_value_info
    layers = [
        helper.make_node(*each)
        for i in range(LAYERS)
        for each in (("MatMul", [f"x{i}", f"w{i}"], [f"y{i}"]), ("Relu", [f"y{i}"], [f"x{i + 1}"]))
    ]
    weights = [tensor(f"w{i}", TensorProto.FLOAT, [32, 32]) for i in range(LAYERS)]
    x, y = tensor("x0", TensorProto.FLOAT, [8, 32]), tensor(f"x{LAYERS}", TensorProto.FLOAT, [8, 32])
    inputs = [*weights, x] if weights_first else [x, *weights]
    model = helper.make_model(helper.make_graph(layers, "chain", inputs, [y]))
    helper.set_model_props(model, {f"dist.role:w{i}": "parameter" for i in range(LAYERS)})
    module = import_model(model)
    prepare(Context(), module)
    return module
