"""Steps that are functions of the user's."""

# pyright: basic, reportIncompatibleMethodOverride=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportReturnType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import copy
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
@quick
def an_average_of_weights() -> Any:
    model = mlp()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.no_grad():
            teacher = average(x).softmax(-1)
        loss = F.cross_entropy(model(x), label) + F.mse_loss(model(x).softmax(-1), teacher)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.mul_(0.9).add_(fast, alpha=0.1)
        return loss

    return written_step(step, {"model": model, "average": average}, optimizer, example_args=classes())


@case
def an_average_by_data() -> Any:
    """The way of classes that keep and swap `.data`."""
    model = mlp()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> dict[str, Tensor]:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        kept = []
        for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
            slow.data = 0.9 * slow.data + 0.1 * fast.data
            kept.append(fast.data)
            fast.data = slow.data
        with torch.no_grad():
            averaged = F.cross_entropy(model(x), label)
        for data, fast in zip(kept, model.parameters(), strict=True):
            fast.data = data
        return {"loss": loss, "averaged": averaged}

    return written_step(step, {"model": model, "average": average}, optimizer, example_args=classes())


@case
@quick
def averaged_model_of_swa_utils() -> Any:
    """The first run copies, all others average."""
    return _averaged(multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))


@case
def averaged_model_with_equal_weights() -> Any:
    return _averaged(use_buffers=True)


def _averaged(**options: Any) -> Any:
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        return loss

    return written_step(step, {"model": model, "average": average}, optimizer, example_args=classes())


@case
@quick
def a_condition_on_what_no_argument_changes() -> Any:
    """A mask that is written to, made and compared inside of the step; one on a parameter is refused."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        mask = torch.zeros(3)
        mask[1:].fill_(1.0)
        scale = 2.0 if bool((mask == torch.tensor([0.0, 1.0, 1.0])).all()) else 1.0
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x) * scale, label)
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@refused("it reads the value of a tensor as a number")
@quick
def a_condition_on_what_an_argument_was_written_to() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        mask = torch.zeros(3)
        mask[1:].copy_(x[0, :2])
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x) * (2.0 if bool((mask > 0).any()) else 1.0), label)
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@refused("writes to a tensor of shape .* that is no parameter")
@quick
def an_average_in_plain_tensors() -> Any:
    model = mlp()
    average = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average, model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
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
@refused("closure cell|changes .*")
def a_count_of_the_users() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    count = 0

    def step(x: Tensor, label: Tensor) -> Tensor:
        nonlocal count
        count += 1
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label) * (2.0 if count > 1 else 1.0)
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@quick
@refused("lr")
def a_schedule_inside() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
def a_schedule_inside_that_is_given() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes(), schedules={schedule: 5})


@case
@refused("reads the value of a tensor")
def a_decision_by_the_loss() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        if loss.item() > 1:
            loss = loss * 2
        loss.backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


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
def averages_by_state_dict() -> Any:
    model = mlp()
    average = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        optimizer.step()
        slow, fast = average.state_dict(), model.state_dict()
        average.load_state_dict({name: slow[name] * 0.9 + fast[name] * 0.1 for name in slow})
        return loss

    return written_step(step, {"model": model, "average": average}, optimizer, example_args=classes())


class Shadow:
    """An average as many have it in a class of their own, which is no module."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.calls = 0

    def update(self, model: nn.Module) -> None:
        self.calls += 1
        for name, p in model.named_parameters():
            self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * p.detach()

    def distance(self, model: nn.Module) -> Any:
        return sum((p - self.shadow[name]).square().sum() for name, p in model.named_parameters())


@case
@quick
@refused(r"changes average\.calls, average\.shadow\['0.weight'\], .*which its next run reads")
def an_average_in_a_class() -> Any:
    model = mlp()
    average = Shadow(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label) + 0.1 * average.distance(model)
        loss.backward()
        optimizer.step()
        average.update(model)
        return loss

    return written_step(step, model, optimizer, example_args=classes())


class Trainer:
    """A step that is a method."""

    def __init__(self, warms_up: bool) -> None:
        self.model, self.steps, self.warms_up = mlp(), 0, warms_up
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.losses: list[Tensor] = []

    def train(self, x: Tensor, label: Tensor) -> Tensor:
        self.steps += 1
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), label)
        (loss * (min(1.0, self.steps / 10) if self.warms_up else 1.0)).backward()
        self.optimizer.step()
        self.losses.append(loss.detach())
        return loss


@case
def a_method_that_counts() -> Any:
    trainer = Trainer(False)
    return written_step(trainer.train, trainer.model, trainer.optimizer, example_args=classes())


@case
@refused(r"changes Trainer\.steps, .*which its next run reads")
def a_method_that_warms_up() -> Any:
    trainer = Trainer(True)
    return written_step(trainer.train, trainer.model, trainer.optimizer, example_args=classes())


global_count = 0


@case
@refused(r"changes global_count, which its next run reads")
def a_global_count() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        global global_count
        global_count += 1
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), label)
        (loss / global_count).backward()
        optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@quick
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
@quick
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


@case
@quick
def a_step_that_leaves_out_what_is_no_number() -> Any:
    """Values are taken to be numbers."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, label: Tensor) -> Tensor:
        found = model(x)
        loss = F.cross_entropy(found, label)
        optimizer.zero_grad()
        if torch.isnan(loss) or not torch.isfinite(found).all():
            return loss * 0
        loss.backward()
        norm = clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        if not (norm.isnan() | norm.isinf()):
            optimizer.step()
        return loss

    return written_step(step, model, optimizer, example_args=classes())


@case
@quick
@refused("reads the value of a tensor as a number or a condition")
def a_step_that_asks_whether_a_mask_is_infinite() -> Any:
    model = mlp()

    def step(x: Tensor, label: Tensor) -> Tensor:
        mask = torch.where(x > 0, x, -torch.inf)
        return model(x).sum() if torch.isinf(mask).any() else model(x).mean()

    return written_step(step, model, example_args=classes())
