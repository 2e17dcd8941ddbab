"""Steps with optimizers of PyTorch and of users, schedules and scalers."""

# pyright: basic, reportIncompatibleMethodOverride=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportReturnType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distir.frontends.pytorch import training_step, written_step
from tests.unit.pytorch_cases.registry import CASES, QUICK, case, classes, classifier, mlp, quick, refused


class ClippedSGD(torch.optim.SGD):
    """Clips by the norm of all gradients."""

    def step(self, closure: Any = None) -> Any:
        total = sum(p.grad.pow(2).sum() for g in self.param_groups for p in g["params"] if p.grad is not None).sqrt()
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad.mul_((0.1 / (total + 1e-6)).clamp(max=1.0))
        return super().step(closure)


class Lion(torch.optim.Optimizer):
    """Chen et al., 2023, as many have it in a file of their own."""

    def __init__(self, params: Any, lr: float = 1e-2, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                update = state["exp_avg"] * beta1 + p.grad * (1 - beta1)
                p.add_(torch.sign(update), alpha=-group["lr"])
                state["exp_avg"].mul_(beta2).add_(p.grad, alpha=1 - beta2)


class CountedAdam(torch.optim.Optimizer):
    """Adam with a counter that is a number, `math.sqrt`, and `.data`, as before PyTorch 1.5."""

    def __init__(self, params: Any, lr: float = 1e-2) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                grad, state = p.grad.data, self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["m"], state["v"] = torch.zeros_like(p.data), torch.zeros_like(p.data)
                state["step"] += 1
                state["m"].mul_(0.9).add_(grad, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(grad, grad, value=0.001)
                correction = math.sqrt(1 - 0.999 ** state["step"]) / (1 - 0.9 ** state["step"])
                p.data.addcdiv_(state["m"], state["v"].sqrt().add_(1e-8), value=-group["lr"] * correction)


class Averaging(torch.optim.Optimizer):
    """Keeps an average that starts at the parameter, and a count in its group."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1, "k": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["k"] += 1
            for p in group["params"]:
                state = self.state[p]
                if "z" not in state:
                    state["z"] = torch.clone(p)
                state["z"].sub_(p.grad, alpha=group["lr"])
                p.lerp_(state["z"], 1 / (group["k"] + 1))


class ListedSGD(torch.optim.Optimizer):
    """With operators over lists."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            gradients = [p.grad for p in group["params"]]
            norms = torch._foreach_norm(gradients)
            torch._foreach_div_(gradients, torch.stack(norms).norm() + 1.0)
            torch._foreach_add_(group["params"], gradients, alpha=-group["lr"])
            torch._foreach_mul_(group["params"], 0.999)


class DifferentiallyPrivate(torch.optim.SGD):
    """Adds noise to gradients."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.grad.add_(torch.randn_like(p.grad), alpha=0.01)
        return super().step(closure)


def one_optimizer(name: str, make: Callable[[Any], Any], is_quick: bool = False) -> None:
    CASES[name] = lambda: classifier(make)
    if is_quick:
        QUICK.add(name)


one_optimizer("clips_by_global_norm", lambda p: ClippedSGD(p, lr=0.5, momentum=0.9), True)
one_optimizer("lion", Lion, True)
one_optimizer("adam_with_a_counter", CountedAdam, True)
one_optimizer("averaging", Averaging, True)
one_optimizer("operators_over_lists", ListedSGD)
one_optimizer("rates_in_single_precision", lambda p: torch.optim.ASGD(p, lr=0.1, lambd=0.1, t0=0, alpha=0.5), True)
one_optimizer("products_in_single_precision", lambda p: torch.optim.NAdam(p, lr=0.05, momentum_decay=0.5), True)
one_optimizer("noise_in_the_optimizer", lambda p: DifferentiallyPrivate(p, lr=0.1))
one_optimizer("adamw_foreach", lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True))
one_optimizer("adamw_fused", lambda p: torch.optim.AdamW(p, lr=0.01, fused=True))
one_optimizer("adamw_amsgrad_maximize", lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, maximize=True), True)
one_optimizer("sgd_fused", lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, fused=True))
one_optimizer("adafactor", lambda p: torch.optim.Adafactor(p, lr=0.01))
one_optimizer("adamax", lambda p: torch.optim.Adamax(p, lr=0.01))
one_optimizer("radam", lambda p: torch.optim.RAdam(p, lr=0.01))
one_optimizer("adadelta", lambda p: torch.optim.Adadelta(p, lr=0.5))
one_optimizer("tensor_learning_rate", lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), foreach=False), True)
one_optimizer("rmsprop_centered", lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5))


@case
@refused("closure|as a number|data-dependent")
def lbfgs() -> Any:
    return classifier(torch.optim.LBFGS)


@case
def muon() -> Any:
    model = nn.Sequential(nn.Linear(6, 10, bias=False), nn.Tanh(), nn.Linear(10, 3, bias=False)).double()
    return classifier(lambda p: torch.optim.Muon(p, lr=0.1), model)


@case
@quick
def groups_with_their_own_settings() -> Any:
    model = mlp()
    groups = [
        {"params": [model[0].weight, model[2].weight], "lr": 0.1, "weight_decay": 0.5},
        {"params": [model[0].bias, model[2].bias], "lr": 0.01, "momentum": 0.3},
    ]
    return classifier(lambda _: torch.optim.SGD(groups, lr=1.0, momentum=0.9), model)


@case
def muon_beside_adamw() -> Any:
    model = mlp()
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    return classifier(lambda _: [torch.optim.Muon(matrices, lr=0.05), torch.optim.AdamW(others, lr=0.01)], model)


@case
def two_optimizers_of_the_same_parameters() -> Any:
    return classifier(
        lambda p: [torch.optim.SGD(q := list(p), lr=0.1, momentum=0.9), torch.optim.SGD(q, lr=0.01, momentum=0.5)]
    )


@case
def a_started_optimizer() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
    return training_step(model, F.cross_entropy, optimizer, example_args=classes())


@case
@refused("does not start at zero")
def dampened_momentum() -> Any:
    return classifier(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5))


def scheduled(make: Callable[[Any], Any], steps: int = 4, **options: Any) -> Any:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, **options)
    return training_step(model, F.cross_entropy, optimizer, example_args=classes(), schedules={make(optimizer): steps})


@case
@quick
def cosine_schedule() -> Any:
    return scheduled(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5))


@case
def one_cycle_schedule() -> Any:
    return scheduled(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=6), 6)


@case
def warmup_then_lambda() -> Any:
    def make(o: Any) -> Any:
        warm = torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=2)
        return torch.optim.lr_scheduler.SequentialLR(
            o, [warm, torch.optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (n + 1))], milestones=[1]
        )

    return scheduled(make)


@case
@refused("decides by the value of the loss")
def plateau_schedule() -> Any:
    return scheduled(torch.optim.lr_scheduler.ReduceLROnPlateau)


@case
@quick
def gradient_scaler() -> Any:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    return classifier(lambda p: torch.optim.AdamW(p, lr=0.01), scaler=scaler)


@case
def gradient_scaler_that_overflows() -> Any:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, growth_interval=1)
    model = mlp().float()
    x, y = classes()

    class Big(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = model

        def forward(self, x: Tensor) -> Tensor:
            return self.inside(x * 1e3) * 1e3

    return training_step(
        Big(),
        F.cross_entropy,
        lambda p: torch.optim.SGD(p, lr=1e-6, momentum=0.9),
        example_args=(x.float(), y),
        scaler=scaler,
    )


@case
@refused("ExponentialLR sets an option that is a tensor: give the optimizer a number instead")
def a_schedule_of_a_tensor() -> Any:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    return written_step(
        lambda x, label: F.cross_entropy(model(x), label),
        model,
        optimizer,
        example_args=classes(),
        schedules={schedule: 4},
    )


def _scaled(make: Callable[[Any], Any], steps: int) -> Any:
    """A step whose model has a parameter without dims, after so many steps of PyTorch's own."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.scale = mlp().float(), nn.Parameter(torch.tensor(0.5))

        def forward(self, x: Tensor) -> Tensor:
            return self.inside(x) * self.scale.exp()

    model, (x, y) = Scaled(), classes()
    optimizer = make(model.parameters())
    for _ in range(steps):
        F.cross_entropy(model(x.float()), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return training_step(model, F.cross_entropy, optimizer, example_args=(x.float(), y))


@case
@quick
def adamw_of_a_parameter_without_dims() -> Any:
    return _scaled(lambda p: torch.optim.AdamW(p, lr=1e-2), 0)


@case
def adamw_of_a_parameter_without_dims_after_two_steps() -> Any:
    return _scaled(lambda p: torch.optim.AdamW(p, lr=1e-2), 2)


@case
def rmsprop_of_a_parameter_without_dims_after_two_steps() -> Any:
    return _scaled(lambda p: torch.optim.RMSprop(p, centered=True, momentum=0.5), 2)


@case
def rprop_of_a_parameter_without_dims() -> Any:
    return _scaled(torch.optim.Rprop, 0)


class TwoMoves(torch.optim.Optimizer):
    """SAM (Foret et al., 2021) as two methods around a second gradient; it has no `step`, its optimizer within has."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})
        self.inner = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)

    @torch.no_grad()
    def climb(self) -> None:
        held = [p for group in self.param_groups for p in group["params"]]
        norm = torch.stack([p.grad.norm() for p in held]).norm()
        for p in held:
            self.state[p]["old"] = p.data.clone()
            p.add_(0.05 * p.grad / (norm + 1e-12))
        self.zero_grad()

    @torch.no_grad()
    def descend(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.inner.step()
        self.zero_grad()


@case
def an_optimizer_without_a_step() -> Any:
    model = mlp()
    optimizer = TwoMoves(model.parameters())

    def train(x: Tensor, label: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.climb()
        F.cross_entropy(model(x), label).backward()
        optimizer.descend()
        return loss

    return written_step(train, model, optimizer, example_args=classes())
