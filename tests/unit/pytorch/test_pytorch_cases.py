"""Steps of every kind (`pytorch_cases`): three steps of each program are those of eager PyTorch, or it is refused and says why.
A part of them runs in every test, all in the long ones."""

import pytest
import torch
from torch import nn

from distir.dialects.errors import DistirError
from distir.frontends.eager import verify_against_eager
from distir.frontends.pytorch import import_step, training_step, written_step
from distir.interpreters.inputs import index_limit, special_indices
from tests.unit.pytorch_cases import averages, decisions, hooks, losses, models, optimizers, written
from tests.unit.pytorch_cases.losses import Output, Returning
from tests.unit.pytorch_cases.optimizers import ClippedSGD
from tests.unit.pytorch_cases.registry import CASES, QUICK, REFUSED, classes, classifier, mlp

FILES = averages, decisions, hooks, losses, models, optimizers, written
"""Which add their steps to CASES."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in CASES],
)
def test_a_step_is_that_of_eager_pytorch(name: str) -> None:
    torch.manual_seed(0)
    step = CASES[name]()
    if name in REFUSED:
        with pytest.raises(DistirError, match=REFUSED[name]) as raised:
            import_step(step)
        assert "\n" not in str(raised.value)
        return
    found = verify_against_eager(import_step(step))
    assert found.holds, [c for c in found.comparisons if not c.holds]
    modules = step.modules.values() if hasattr(step, "modules") else [step.model]
    assert len(found.comparisons) > sum(len(list(module.parameters())) for module in modules)


def test_a_step_that_differs_is_seen() -> None:
    """The program of one step against eager PyTorch of another."""
    torch.manual_seed(0)
    model = mlp()
    program = import_step(
        training_step(model, nn.functional.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.5)), classes()
    )
    clipped = training_step(model, nn.functional.cross_entropy, lambda p: ClippedSGD(p, lr=0.5))
    assert not verify_against_eager(import_step(clipped, classes()), program).holds


def test_importing_leaves_everything_as_it_was() -> None:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)
    parameters, options = list(model.parameters()), dict(optimizer.param_groups[0])
    values = [p.detach().clone() for p in parameters]
    parameters[0].grad = torch.ones_like(parameters[0])
    drawn = torch.random.get_rng_state()
    import_step(training_step(model, nn.functional.cross_entropy, optimizer), classes_without_draws())
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert all(torch.equal(p, value) for p, value in zip(parameters, values, strict=True))
    assert torch.equal(parameters[0].grad, torch.ones_like(parameters[0]))
    assert parameters[1].grad is None
    assert not optimizer.state
    assert dict(optimizer.param_groups[0]) == options
    assert torch.equal(torch.random.get_rng_state(), drawn)


def test_running_leaves_everything_as_it_was() -> None:
    """Also what an optimizer shares with one that it wraps, and where its state is."""
    torch.manual_seed(0)
    model = mlp()
    optimizer = written.Sharpness(model.parameters(), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    base, parameters = optimizer.base, list(model.parameters())
    step = written.sharpness_aware_step(model, optimizer)
    step.function(*classes())
    tensors = [*parameters, *(base.state[p]["momentum_buffer"] for p in parameters)]
    before = [(each, each.data_ptr(), each.detach().clone()) for each in tensors]
    assert verify_against_eager(import_step(step)).holds
    assert optimizer.param_groups is base.param_groups
    now = [*model.parameters(), *(base.state[p]["momentum_buffer"] for p in parameters)]
    for tensor, (then, place, value) in zip(now, before, strict=True):
        assert tensor is then
        assert tensor.data_ptr() == place
        assert torch.equal(tensor, value)


def classes_without_draws() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(8, 6, dtype=torch.float64), torch.arange(8) % 3


def test_a_refused_step_leaves_everything_as_it_was() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> None:
        model(x).sum().backward()
        optimizer.step()
        raise ValueError("not today")

    before = dict(vars(optimizer)), list(model.parameters())
    with pytest.raises(
        DistirError, match=r"step cannot be traced: ValueError: not today \(test_pytorch_cases.py:\d+: raise"
    ):
        import_step(written_step(step, model, optimizer), classes()[:1])
    assert before[0] == vars(optimizer)
    assert all(a is b for a, b in zip(before[1], model.parameters(), strict=True))
    assert all(p.grad is None for p in model.parameters())


def test_a_step_without_a_label_says_what_the_arguments_are() -> None:
    model = mlp()
    step = training_step(
        model, nn.functional.cross_entropy, torch.optim.SGD(model.parameters()), example_args=classes()[:1]
    )
    with pytest.raises(
        DistirError, match=r"missing 1 required positional argument: .*; the last example argument is the loss's label"
    ):
        import_step(step)


def test_clipping_by_the_norm_of_all_gradients_is_one_norm() -> None:
    """The update of a parameter depends on the gradients of the others."""
    torch.manual_seed(0)
    module = import_step(classifier(lambda p: ClippedSGD(p, lr=0.5)))
    assert sum(op.name == "aten.sqrt" for op in module.walk()) == 1


@pytest.mark.parametrize("layers", [2, 4])
def test_an_update_has_as_many_operations_for_each_parameter(layers: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(layers))).double()
    module = import_step(
        training_step(model, nn.functional.mse_loss, lambda p: torch.optim.AdamW(p)), (torch.ones(2, 6).double(),) * 2
    )
    assert sum(op.name == "aten.addcdiv" for op in module.walk()) == 2 * layers


def test_state_that_nothing_reads_is_no_argument() -> None:
    torch.manual_seed(0)
    model = mlp()
    model[0].requires_grad_(False)
    module = import_step(classifier(lambda _: torch.optim.AdamW(model.parameters()), model))
    text = str(module)
    assert '"state.2.weight.exp_avg"' in text
    assert '"state.0.weight.exp_avg"' not in text
    assert '"grad.' not in text


def test_results_of_dataclasses_have_names() -> None:
    torch.manual_seed(0)
    model = Returning(lambda y, z: Output(y.sum(), y, [z]))
    x = classes()[0]
    found = verify_against_eager(import_step(model, (x,)))
    assert {"loss", "logits", "rest.0"} <= {c.name for c in found.comparisons}
    assert found.holds


def test_results_of_unknown_classes_are_refused() -> None:
    class Boxed:
        pass

    with pytest.raises(DistirError, match="result is a Boxed, expected tensors"):
        import_step(lambda x: Boxed(), (torch.ones(2),))


def test_a_plain_function_that_trains_is_refused() -> None:
    model = mlp()

    def train(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).sum()
        loss.backward()
        return loss

    with pytest.raises(DistirError, match=r"train has a backward pass: give a step .* as written_step"):
        import_step(train, classes()[:1])
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("name", ["bag_of_sums", "bag_of_maxima"])
def test_indices_are_drawn_for_kernels_that_do_not_check_them(name: str) -> None:
    """The gradient of torch's bags writes wherever an index says."""
    module = import_step(CASES[name]())
    assert index_limit(module, "x") == 7
    assert special_indices(module, "x") == []
    assert index_limit(module, "label") == 3
    assert special_indices(module, "label") == [-100]
