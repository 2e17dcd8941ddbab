"""Steps with hooks, parametrizations, and parameters that are tied, frozen or unused."""

# pyright: basic, reportIncompatibleMethodOverride=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false, reportReturnType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, parametrizations

from distir.frontends.pytorch import training_step, written_step
from tests.unit.pytorch_cases.registry import case, classes, classifier, mlp, quick


@case
def step_pre_hook_that_clips() -> Any:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def clip(*_: Any) -> None:
        clip_grad_norm_(model.parameters(), 0.01)

    optimizer.register_step_pre_hook(clip)
    return training_step(model, F.cross_entropy, optimizer, example_args=classes())


@case
def step_post_hook_that_clamps() -> Any:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def clamp(of: Any, *_: Any) -> None:
        with torch.no_grad():
            for p in of.param_groups[0]["params"]:
                p.clamp_(-0.2, 0.2)

    optimizer.register_step_post_hook(clamp)
    return training_step(model, F.cross_entropy, optimizer, example_args=classes())


@case
@quick
def hooks_on_parameters() -> Any:
    model = mlp()
    model[0].weight.register_hook(lambda g: g * 0.5)
    model[2].weight.register_hook(lambda g: g.clamp(-0.01, 0.01))
    return classifier(lambda _: torch.optim.SGD(model.parameters(), lr=1.0), model)


@case
def a_hook_of_all_gradients_that_writes() -> Any:
    model = mlp()

    def halve(gradients: Any) -> None:
        for each in gradients:
            each.mul_(0.5)

    torch.autograd.graph.register_multi_grad_hook(list(model.parameters()), halve)
    return classifier(lambda _: torch.optim.SGD(model.parameters(), lr=1.0), model)


@case
@quick
def hooks_on_nodes_that_accumulate() -> Any:
    """As it was done before parameters had hooks for it."""
    model = mlp()
    nodes = [p.view_as(p).grad_fn.next_functions[0][0] for p in model.parameters()]
    for p, node in zip(model.parameters(), nodes, strict=True):
        node.register_hook(lambda *_, p=p: [None, p.grad.mul_(0.5)][0])
    nodes[0].register_prehook(lambda g: (g[0] * 0.5,))
    model.nodes = nodes
    return classifier(lambda _: torch.optim.SGD(model.parameters(), lr=1.0), model)


@case
def hooks_after_gradients_accumulate() -> Any:
    model = mlp()

    def hook(p: Tensor) -> None:
        p.grad.mul_(0.1)

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    return classifier(lambda _: torch.optim.SGD(model.parameters(), lr=1.0), model)


@case
@quick
def optimizer_steps_in_the_backward_pass() -> Any:
    model = mlp()
    optimizers = {p: torch.optim.Adam([p], lr=0.01) for p in model.parameters()}

    def hook(p: Tensor) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def step(x: Tensor, label: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), label)
        loss.backward()
        return loss

    return written_step(step, model, list(optimizers.values()), example_args=classes())


class HookedActivation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        if h.requires_grad:
            h.register_hook(lambda g: g * 3.0)
        return self.last(h)


@case
def hooks_on_activations() -> Any:
    return classifier(lambda p: torch.optim.SGD(p, lr=0.1), HookedActivation().double())


@case
def hooks_of_modules() -> Any:
    model = mlp()
    model[0].register_forward_pre_hook(lambda m, x: (x[0] * 2,))
    model[0].register_forward_hook(lambda m, x, y: y + 1)
    model[2].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.25,))
    model[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 1.5,))
    return classifier(lambda _: torch.optim.SGD(model.parameters(), lr=0.1), model)


@case
def weight_norm_parametrization() -> Any:
    model = mlp()
    parametrizations.weight_norm(model[0])
    return classifier(lambda _: torch.optim.Adam(model.parameters(), lr=0.01), model)


@case
def old_weight_norm() -> Any:
    model = mlp()
    nn.utils.weight_norm(model[0])
    return classifier(lambda _: torch.optim.Adam(model.parameters(), lr=0.01), model)


@case
def spectral_norm_parametrization() -> Any:
    model = mlp()
    parametrizations.spectral_norm(model[0])
    return classifier(lambda _: torch.optim.Adam(model.parameters(), lr=0.01), model)


@case
def old_spectral_norm() -> Any:
    model = mlp()
    nn.utils.spectral_norm(model[0])
    return classifier(lambda _: torch.optim.SGD(model.parameters(), lr=0.01), model)


@case
def orthogonal_parametrization() -> Any:
    model = mlp(width=6)
    parametrizations.orthogonal(model[0], orthogonal_map="cayley")
    return classifier(lambda _: torch.optim.SGD(model.parameters(), lr=0.01), model)


@case
def tied_parameters() -> Any:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3)).double()
    model[2].weight = model[0].weight
    return classifier(lambda p: torch.optim.AdamW(p, lr=0.1), model)


@case
def frozen_parameters() -> Any:
    model = mlp()
    model[0].requires_grad_(False)
    return classifier(lambda _: torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5), model)


@case
def an_unused_layer() -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(6, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    return classifier(lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.5), Model().double())
