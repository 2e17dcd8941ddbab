"""Steps that are functions of the user's."""

# pyright: basic, reportIncompatibleMethodOverride=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportReturnType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from distir.frontends.pytorch import written_step
from tests.unit.pytorch_cases.registry import case, classes, mlp, quick, refused


@case
@quick
def a_written_step_that_clips() -> Any:
    model = mlp()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        clip_grad_norm_(parameters, 0.01)
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
def a_written_step_that_clips_values() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor, label: Tensor) -> dict[str, Tensor]:
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        clip_grad_value_(model.parameters(), 0.01)
        norm = clip_grad_norm_(model.parameters(), 1.0, norm_type=float("inf"))
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return {"loss": loss, "norm": norm}

    return written_step(step, model, optimizer, example_args=classes())


@case
def gradients_accumulated_within() -> Any:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for part, labels in zip(x.chunk(4), label.chunk(4), strict=True):
            loss = F.cross_entropy(model(part), labels) / 4
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return written_step(step, model, optimizer, example_args=classes())


@case
def gradients_accumulated_over_steps() -> Any:
    """Nothing is ever set to zero."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
def adversarial_networks() -> Any:
    maker, judge = mlp(outputs=6), mlp(outputs=1)
    of_maker = torch.optim.Adam(maker.parameters(), lr=0.01)
    of_judge = torch.optim.Adam(judge.parameters(), lr=0.02)

    def step(x: Tensor) -> dict[str, Tensor]:
        noise = torch.randn_like(x)
        of_judge.zero_grad()
        real, fake = judge(x), judge(maker(noise).detach())
        judged = F.softplus(-real).mean() + F.softplus(fake).mean()
        judged.backward()
        of_judge.step()
        of_maker.zero_grad()
        judge.requires_grad_(False)
        made = F.softplus(-judge(maker(noise))).mean()
        made.backward()
        of_maker.step()
        judge.requires_grad_(True)
        return {"judged": judged, "made": made}

    return written_step(step, {"maker": maker, "judge": judge}, [of_maker, of_judge], example_args=classes()[:1])


@case
def gradient_penalty() -> Any:
    model = mlp(outputs=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = model(x).mean() + (slope.norm(dim=1) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes()[:1])


@case
def by_hand() -> Any:
    model = mlp()

    def step(x: Tensor, label: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), label)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), gradients, strict=True):
                p -= 0.1 * g
        return loss

    return written_step(step, model, example_args=classes())


@case
def functional_gradients() -> Any:
    model = mlp()

    def step(x: Tensor, label: Tensor) -> Tensor:
        parameters = dict(model.named_parameters())

        def loss_of(own: dict[str, Tensor]) -> Tensor:
            return F.cross_entropy(torch.func.functional_call(model, own, (x,)), label)

        gradients, loss = torch.func.grad_and_value(loss_of)(parameters)
        with torch.no_grad():
            for name, p in parameters.items():
                p.sub_(gradients[name], alpha=0.1)
        return loss

    return written_step(step, model, example_args=classes())


@case
def a_closure() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Tensor, label: Tensor) -> Tensor:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), label)
            loss.backward()
            return loss

        return optimizer.step(closure)

    return written_step(step, model, optimizer, example_args=classes())


class Sharpness(torch.optim.Optimizer):
    """Foret et al., 2020, with the optimizer that it wraps."""

    def __init__(self, params: Any, base: Any) -> None:
        super().__init__(params, {"rho": 0.05})
        self.base = base(self.param_groups)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def step(self, closure: Any = None) -> Tensor:
        assert closure is not None
        with torch.enable_grad():
            loss = closure()
        norm = torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["before"] = p.data.clone()
                p.add_(p.grad * (0.05 / (norm + 1e-12)))
        self.zero_grad()
        with torch.enable_grad():
            closure()
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["before"]
        self.base.step()
        return loss


def sharpness_aware_step(model: nn.Module, optimizer: Sharpness) -> Any:
    def step(x: Tensor, label: Tensor) -> Tensor:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), label)
            loss.backward()
            return loss

        return optimizer.step(closure)

    return written_step(step, model, optimizer, example_args=classes())


@case
def sharpness_aware() -> Any:
    model = mlp()
    return sharpness_aware_step(
        model, Sharpness(model.parameters(), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    )


@case
def a_written_step_with_a_scaler() -> Any:
    model = mlp().float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        return loss

    x, y = classes()
    return written_step(step, model, optimizer, scalers=[scaler], example_args=(x.float(), y))


@case
def mixed_precision_of_an_accelerator() -> Any:
    model = mlp().float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        return loss

    x, y = classes()
    return written_step(step, model, optimizer, example_args=(x.float(), y))


@case
def retained_gradients() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> dict[str, Tensor]:
        optimizer.zero_grad()
        h = model[0](x)
        h.retain_grad()
        loss = F.cross_entropy(model[2](model[1](h)), label)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "slope": h.grad.norm()}

    return written_step(step, model, optimizer, example_args=classes())


@case
@refused("changes whether 0.weight is trained")
def a_layer_that_is_frozen_later() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        model[0].weight.requires_grad_(False)
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@quick
@refused("SGD has other parameters after the step")
def a_group_that_is_added_later() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        if len(optimizer.param_groups) == 1:
            optimizer.add_param_group({"params": list(model[2].parameters())})
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@refused("makes the parameter 0.weight anew")
def a_parameter_that_is_replaced() -> Any:
    model = mlp()

    def step(x: Tensor, label: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), label)
        model.zero_grad()
        loss.backward()
        weight = model[0].weight
        model[0].weight = nn.Parameter(weight.detach() - 0.1 * weight.grad)  # pyright: ignore
        return loss

    return written_step(step, model, example_args=classes())


@case
@quick
def a_loss_of_distributions() -> Any:
    """They check by default that their values are valid, which raises at most."""
    model = nn.ModuleDict({"actor": mlp(), "critic": nn.Linear(6, 3)}).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        torch._check_tensor_all_with(ValueError, label < 3, lambda: "classes are 0 to 2")
        policy = torch.distributions.Categorical(logits=model["actor"](x))
        value = torch.distributions.Normal(model["critic"](x), 1.0)
        loss = -(policy.log_prob(label) + value.log_prob(value.rsample()).sum(-1) + 0.01 * policy.entropy()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())
