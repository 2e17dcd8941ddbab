"""Checkpoints: from PyTorch into a program, through a step, and back into the torch.nn.Module."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import cross_entropy

from distir.dialects.errors import DistirError
from distir.frontends.checkpoints import bind, save
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of

X, LABEL = torch.linspace(-1, 1, 48).reshape(8, 6), torch.arange(8) % 3


def model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def program(seed: int = 0):
    made = model(seed)
    return import_step(
        training_step(made, cross_entropy, torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9)), (X, LABEL)
    )


def write(path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_state_dict_is_bound_trained_and_loaded_back(suffix: str, tmp_path: Path) -> None:
    trained = model(seed=1)
    module = program(seed=0)
    bind(module, write(tmp_path / f"start{suffix}", trained.state_dict()))
    batch = {"input": X.numpy(), "label": LABEL.numpy()}
    save(tmp_path / "next.safetensors", run(module, dict(weights_of(module)) | batch))

    eager = copy.deepcopy(trained)
    cross_entropy(eager(X), LABEL).backward()
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1, momentum=0.9)
    optimizer.step()
    returned = load_file(tmp_path / "next.safetensors")
    loaded = model(seed=2)
    keys = loaded.load_state_dict(returned, strict=False)
    assert keys.missing_keys == []
    for name, value in eager.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], value, rtol=1e-5, atol=1e-5)

    bind(module, tmp_path / "next.safetensors")  # with the optimizer's state
    momentum = "state.0.weight.momentum_buffer"
    np.testing.assert_array_equal(weights_of(module)[momentum], returned[momentum])
    np.testing.assert_allclose(returned[momentum], eager[0].weight.grad, rtol=1e-5, atol=1e-6)


def test_a_tied_weight_may_have_both_names(tmp_path: Path) -> None:
    weights = {k: v.clone() for k, v in model(1).state_dict().items()}
    bind(program(), write(tmp_path / "w.pt", weights | {"head.weight": weights["2.weight"]}))


def test_state_is_left_out_for_a_program_without(tmp_path: Path) -> None:
    module = import_step(model(0).eval(), (X,))
    bind(
        module,
        write(tmp_path / "w.pt", dict(model(1).state_dict()) | {"state.0.weight.momentum_buffer": torch.zeros(4, 6)}),
    )
    np.testing.assert_array_equal(weights_of(module)["0.weight"], model(1).state_dict()["0.weight"])


def test_what_keeps_its_value_is_said(tmp_path: Path) -> None:
    good = dict(model(1).state_dict())
    module = program()
    kept = bind(module, write(tmp_path / "w.pt", {k: v for k, v in good.items() if k != "1.running_var"}))
    states = [n for n in weights_of(module) if n.startswith("state.")]
    assert kept == ["1.running_var", *states]
    assert len(states) == 6
    np.testing.assert_array_equal(weights_of(module)["1.running_var"], np.ones(4))
    some = good | {"state.0.weight.momentum_buffer": torch.ones(4, 6)}
    with pytest.raises(
        DistirError, match=r"has a part of the optimizer's state, and no value for '.*' and 2 more: save"
    ):
        bind(program(), write(tmp_path / "w.pt", some))


def test_names_shapes_and_types_that_do_not_fit(tmp_path: Path) -> None:
    good = dict(model(1).state_dict())
    without = {k: v for k, v in good.items() if k != "0.bias"}
    cases = [
        (without, r"w\.pt: no value for '0\.bias'$"),
        ({f"model.{k}": v for k, v in good.items()}, r"no value for .* and 3 more; it has 'model\.0\.weight', which"),
        (good | {"extra": torch.ones(1)}, r"w\.pt: has 'extra', which is no parameter, buffer or state of the program"),
        (good | {"0.bias": torch.ones(5)}, r"'0\.bias' has shape \[5\], the program's parameter has \[4\]"),
        (good | {"0.bias": torch.ones(4).double()}, r"'0\.bias' is float64, the program's parameter is float32: cast"),
        ({"epoch": 3, "model": good}, r"expected a state_dict, tensors by name, got 'epoch' is a int: save that part"),
        ({}, r"expected a state_dict"),
    ]
    for tensors, message in cases:
        with pytest.raises(DistirError, match=message) as raised:
            bind(program(), write(tmp_path / "w.pt", tensors))  # type: ignore[arg-type]
        assert "\n" not in str(raised.value)


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    class Executed:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "executed",))

    torch.save({"0.weight": Executed()}, tmp_path / "w.pt")
    with pytest.raises(DistirError, match=r"w\.pt: is no state_dict of tensors"):
        bind(program(), tmp_path / "w.pt")
    assert not (tmp_path / "executed").exists()
    with pytest.raises(DistirError, match=r"missing\.pt: no such checkpoint"):
        bind(program(), tmp_path / "missing.pt")


def test_the_commands_bind_and_write_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from distir.tools.distir import main

    monkeypatch.chdir(Path(__file__).parents[3])
    monkeypatch.syspath_prepend(str(Path.cwd()))
    start = {n: np.full_like(v, 0.25) for n, v in weights_of(step_of_the_example()).items() if "state" not in n}
    save(tmp_path / "start.safetensors", start)
    step, after = str(tmp_path / "step.mlir"), str(tmp_path / "next.safetensors")
    model_option = ["import", "examples.mlp_pytorch:step", "-o", step]
    assert main([*model_option, "--weights", str(tmp_path / "start.safetensors")]) == 0
    assert ": the program's own stay" in capsys.readouterr().err
    assert main(["run", step, "-o", after]) == 0
    assert main([*model_option, "--weights", after]) == 0
    assert "the program's own stay" not in capsys.readouterr().err
    assert main([*model_option, "--weights", step]) == 1


def step_of_the_example():
    from examples.mlp_pytorch import step

    return import_step(step())
