"""A program beside the framework that it was imported from: three steps of eager PyTorch, from the model's values and from drawn ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.frontends.eager import attach_eager, eager_of, verify_against_eager
from distir.frontends.pytorch import TrainingStep, import_step, training_step, written_step
from distir.interpreters.equivalence import verify
from distir.interpreters.reference import run
from distir.interpreters.weights import attach, weights_of
from distir.tools.distir import main


def step(optimizer: Any, dropout: float = 0.0) -> TrainingStep:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(dropout), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    example = torch.randn(6, 5), torch.randint(0, 3, (6,))
    return training_step(model, nn.functional.cross_entropy, optimizer, example_args=example)


def adamw(lr: float) -> Any:
    return lambda parameters: torch.optim.AdamW(parameters, lr=lr)


def sgd(lr: float) -> Any:
    return lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9)


@pytest.mark.parametrize(("optimizer", "dropout"), [(sgd, 0.5), pytest.param(adamw, 0.0, marks=pytest.mark.long)])
def test_a_step_is_what_eager_pytorch_does(optimizer: Any, dropout: float):
    """Batch norm's buffers and dropout among it; afterwards the model is what it was."""
    made = step(optimizer(1e-3), dropout)
    before = {name: tensor.clone() for name, tensor in made.model.state_dict().items()}
    found = verify_against_eager(import_step(made))
    assert found.holds, found.comparisons
    assert found.draws == ["3 steps from the model's own values", "3 steps from drawn parameters"]
    assert {"loss", "0.weight", "2.running_var"} <= {c.name for c in found.comparisons}
    assert all(torch.equal(tensor, before[name]) for name, tensor in made.model.state_dict().items())
    assert not made.optimizers[0].state


def test_a_wrong_step_differs():
    """Another learning rate, by a hundredth."""
    module, other = import_step(step(sgd(1e-3))), import_step(step(sgd(1.01e-3)))
    found = verify_against_eager(module, other)
    assert {c.name for c in found.comparisons if not c.holds} >= {"0.weight", "4.weight", "4.bias"}


def clipped(norm: float) -> Any:
    torch.manual_seed(0)
    model = nn.Linear(2048, 2048, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        total = nn.utils.clip_grad_norm_(model.parameters(), norm)
        optimizer.step()
        return total

    return written_step(train, model, optimizer, example_args=(torch.randn(4, 2048),))


def test_what_a_kernel_loses_in_a_long_sum_is_rounding():
    """PyTorch's f32 norm of 4 million numbers is off by 1e-4."""
    module = import_step(clipped(1.0))
    found = verify_against_eager(module, steps=1, drawn=False)
    assert found.holds, found.comparisons
    found = verify_against_eager(module, import_step(clipped(1.01)), steps=1, drawn=False)
    assert {c.name for c in found.comparisons if not c.holds} == {"weight"}


def test_a_function_of_tensors_and_a_module():
    x = torch.randn(4, 3)
    assert verify_against_eager(import_step(lambda a, b: (a * b).sum(0), (x, x))).holds
    assert verify_against_eager(import_step(nn.BatchNorm1d(3), (x,))).holds


def test_inputs_that_are_probabilities():
    """On others the first raises, and the second gives no numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 1), nn.Sigmoid())
    example = torch.randn(6, 5), torch.rand(6, 1)
    assert verify_against_eager(import_step(training_step(model, nn.BCELoss(), sgd(0.1), example_args=example))).holds
    module = import_step(lambda x: x.log().sum(0), (torch.rand(4, 3),))
    assert verify_against_eager(module).holds
    assert verify(module, module).holds


class Attending(nn.Module):
    """An attention between embeddings and words, gated."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(64, 32), nn.Linear(32, 64, bias=False)
        self.q, self.k, self.v, self.gate = (nn.Linear(32, 32, bias=False) for _ in range(4))
        for each in self.parameters():
            nn.init.normal_(each, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = nn.functional.rms_norm(self.words(tokens), (32,))
        q, k, v = (made(x).unflatten(-1, (4, 8)).transpose(1, 2) for made in (self.q, self.k, self.v))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.head(nn.functional.rms_norm(x + seen * nn.functional.silu(self.gate(x)), (32,))).transpose(1, 2)


class LargestOfGroups(nn.Module):
    """The largest number of each group is taken from all."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores, groups = x * self.weight, torch.tensor([0, 0, 1, 1, 1, 2, 2, 2])
        return scores - torch.full((3,), -1e9).scatter_reduce(0, groups, scores, "amax")[groups]


def test_a_number_that_is_chosen_has_its_last_digits():
    """The gradient of a maximum goes where the same number is: with other last digits it would be nowhere, and nothing a number."""
    torch.manual_seed(0)
    model = LargestOfGroups()
    example = torch.randn(8), torch.randn(8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    module = import_step(training_step(model, nn.functional.mse_loss, optimizer, example_args=example))
    given = {**weights_of(module), **dict(zip(("x", "label"), map(np.asarray, example), strict=True))}
    found = run(module, given, noise=np.random.default_rng(0))
    assert np.isfinite(found["weight"]).all()


def test_rounding_inside_of_a_step_in_mixed_precision_is_no_difference():
    """Adam turns gradients that are nearly zero, and rounded to half precision on the way, into steps of full length; a wrong step is seen."""
    torch.manual_seed(0)
    model, tokens = Attending(), torch.randint(0, 64, (2, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loss = nn.functional.cross_entropy
    module = import_step(training_step(model, loss, optimizer, example_args=(tokens, tokens), autocast=torch.bfloat16))
    assert verify_against_eager(module).holds
    wrong = module.clone()
    (gate, *_) = (op for op in wrong.walk() if "silu" in op.name)
    gate.results[0].replace_all_uses_with(gate.operands[0])
    assert not verify_against_eager(module, wrong).holds


def test_what_cannot_be_compared():
    module = import_step(nn.Linear(3, 2), (torch.randn(4, 3),))
    copy = module.clone()
    attach(copy, weights_of(module))
    with pytest.raises(DistirError, match="there is nothing to compare with: expected MODULE:FUNCTION"):
        verify_against_eager(copy)
    with torch.device("meta"):
        meta = import_step(nn.Linear(3, 2), (torch.randn(4, 3),))
    with pytest.raises(DistirError, match="it has parameters without values"):
        verify_against_eager(meta)

    def fails(values: Any, batches: Any) -> Any:
        raise ValueError("a fault of the user's\nin two lines")

    attach_eager(copy, fails)
    assert eager_of(copy) is fails
    with pytest.raises(DistirError, match=r"the step itself failed: ValueError: a fault of the user's$"):
        verify_against_eager(copy)


MODEL = """
import torch
from torch import nn
from distir.frontends.pytorch import training_step

def step(lr=1e-2):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    example = torch.randn(4, 3), torch.randint(0, 2, (4,))
    return training_step(model, nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), lr=lr), example_args=example)

def other():
    return step(2e-2)
"""


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """With one argument the step's own program, with two a program that is given, a distributed one too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("eager_model.py").write_text(MODEL)
    assert main(["verify", "eager_model:step", "--against-eager"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "against eager: 3 steps from the model's own values, 3 steps from drawn parameters"
    assert out[-1] == "every output agrees (3)"
    assert main(["import", "eager_model:other", "-o", "other.mlir"]) == 0
    assert main(["verify", "eager_model:step", "other.mlir", "--against-eager"]) == 1
    assert capsys.readouterr().out.endswith("2 of 3 outputs differ\n")
    assert main(["verify", "eager_model:step"]) == 1
    assert "expected two programs to compare, got one" in capsys.readouterr().err
    assert main(["verify", "other.mlir", "--against-eager"]) == 1
    assert "there is nothing to compare with" in capsys.readouterr().err


@pytest.mark.long
def test_a_step_of_jax():
    import jax.numpy as jnp

    from distir.frontends.jax import import_step as import_jax

    def train(rate: float) -> ModuleOp:
        def step(w: Any, m: Any, x: Any) -> Any:
            m = 0.9 * m + jnp.tanh(x @ w).sum(0)
            return w - rate * m, m, (x @ w).mean()

        shapes = ((3, 2), (2,), (4, 3))
        arrays = [np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in shapes]
        return import_jax(
            step, tuple(arrays), ("parameter", "state", "input"), results=("parameter", "state", "output")
        )

    assert verify_against_eager(train(0.1)).holds
    found = verify_against_eager(train(0.1), train(0.2))
    assert [c.name for c in found.comparisons if not c.holds] == ["w"]


STEPS_TO_IMPORT = """
import numpy
import torch
from distir.frontends.eager import attach_eager, eager_of
from distir.frontends.pytorch import import_step, training_step


def step(width=8):
    torch.manual_seed(0)
    model = torch.nn.Linear(width, 4)
    made = training_step(model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    return import_step(made, (torch.randn(6, width), torch.randn(6, 4)))


def large():
    with torch.device("meta"):
        return import_step(torch.nn.Linear(1 << 20, 1 << 16), (torch.randn(512, 1 << 20),))


def wrong():
    module = step()
    right = eager_of(module)
    attach_eager(module, lambda *given: [r | {"weight": 0.9 * r["weight"]} for r in right(*given)])
    return module


def without_numbers():
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)

    def loss(output, label):
        return (output - output).sqrt().mean() + torch.nn.functional.mse_loss(output, label)

    return import_step(training_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1)), (torch.randn(6, 8), torch.randn(6, 4)))


def wrongly_without_numbers():
    module = without_numbers()
    right = eager_of(module)
    attach_eager(module, lambda *given: [r | {"weight": numpy.nan_to_num(r["weight"])} for r in right(*given)])
    return module
"""


@pytest.fixture
def steps_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "steps_to_import.py").write_text(STEPS_TO_IMPORT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("steps_to_import")
def test_an_import_compares_two_steps_and_says_so(capsys: pytest.CaptureFixture[str]):
    assert main(["import", "steps_to_import:step", "-o", "step.mlir"]) == 0
    assert capsys.readouterr().err == "distir: note: two steps are the framework's own: 3 results compared\n"
    assert main(["import", "steps_to_import:step", "--no-check", "-o", "step.mlir"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["import", "steps_to_import:large", "-o", "large.mlir"]) == 0
    assert "not compared with the framework's own step: that would take more than 10 s" in capsys.readouterr().err


@pytest.mark.usefixtures("steps_to_import")
def test_what_is_no_number_in_the_framework_either_is_not_called_different(capsys: pytest.CaptureFixture[str]):
    """The root of zero has no gradient."""
    assert main(["import", "steps_to_import:without_numbers", "-o", "step.mlir"]) == 0
    said = capsys.readouterr().err
    assert "have values that are no numbers there either, which were not compared" in said
    assert main(["import", "steps_to_import:wrongly_without_numbers", "-o", "step.mlir"]) == 1
    assert "the program is not what the framework does" in capsys.readouterr().err


@pytest.mark.usefixtures("steps_to_import")
def test_an_import_that_differs_from_its_framework_is_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["import", "steps_to_import:wrong", "-o", "wrong.mlir"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(
        "distir: error: steps_to_import:wrong: the program is not what the framework does: 3 of 3 results"
    )
    assert "weight" in err
    assert not Path("wrong.mlir").exists()
    assert main(["import", "steps_to_import:wrong", "--no-check", "-o", "wrong.mlir"]) == 0
