"""Training steps of real models: those of `transformers` with random weights, and a graph attention network, through distir.

    python -m benchmarks.pytorch_models [--no-plans] [NAME ...]        # needs pip install 'distir[models]'

For each: seconds to import, operations, the largest difference of loss, parameters and buffers to eager PyTorch after three
steps with momentum (relative to the largest element; in float64 and in float32), and of `dtp-parallelize` with D=2 x T=2,
P=2 x K=4 and D=2 x T=2 x P=2 either the largest difference to the sequential program in float64 or why it refuses.
"""

import argparse
import copy
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from benchmarks import onnx_models
from distir.dialects.errors import DistirError
from distir.frontends.pytorch import import_step, training_step
from distir.frontends.weights import weights_of
from distir.interpreters.reference import run
from distir.passes.dtp_parallelize import DtpParallelizePass

CLASSES = 2
PLANS = ({"dp": 2, "tp": 2}, {"pp": 2, "microbatches": 4}, {"dp": 2, "tp": 2, "pp": 2})


class GraphAttention(nn.Module):
    """Two layers of graph attention (Velickovic et al., 2018, equations 1 to 4) over a dense adjacency matrix; the batch is of
    graphs."""

    def __init__(self, features: int = 6, hidden: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.ModuleList([nn.Linear(features, hidden * heads), nn.Linear(hidden * heads, hidden * heads)])
        self.source = nn.ParameterList([nn.Parameter(torch.randn(heads, hidden)) for _ in range(2)])
        self.target = nn.ParameterList([nn.Parameter(torch.randn(heads, hidden)) for _ in range(2)])
        self.classify = nn.Linear(hidden * heads, CLASSES)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        for project, source, target in zip(self.project, self.source, self.target, strict=True):
            h = project(x).unflatten(-1, (self.heads, -1))
            scores = (h * source).sum(-1).unsqueeze(2) + (h * target).sum(-1).unsqueeze(1)
            scores = nn.functional.leaky_relu(scores, 0.2).masked_fill(adjacency.unsqueeze(-1) == 0, -1e9)
            x = nn.functional.elu(torch.einsum("bijh,bjhd->bihd", scores.softmax(2), h).flatten(2))
        return self.classify(x.mean(1))


def gat() -> tuple[nn.Module, list[Tensor]]:
    adjacency = (torch.rand(onnx_models.BATCH, 5, 5) + torch.eye(5) > 0.5).float()
    return GraphAttention(), [torch.randn(onnx_models.BATCH, 5, 6), adjacency]


MODELS: dict[str, Callable[[], tuple[nn.Module, list[Tensor]]]] = {
    name: getattr(onnx_models, name) for name in ("gpt2", "llama", "bert", "vit", "resnet", "mixtral")
} | {"gat": gat}


def per_element(output: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy of every row of the last dim."""
    return cross_entropy(output.flatten(0, -2), label.flatten())


@dataclass
class Outcome:
    """What came of one model."""

    seconds: float
    operations: int
    differences: dict[str, float] = field(default_factory=dict[str, float])
    plans: dict[str, float | str] = field(default_factory=dict[str, "float | str"])


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest, relative to the largest element or one."""
    return float(np.abs(a - b).max(initial=0) / max(1.0, np.abs(a).max(initial=0)))


def optimizer(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)  # type: ignore[arg-type]


def batches(inputs: list[Tensor], output: Tensor) -> list[tuple[Tensor, ...]]:
    """Three batches of inputs and labels."""
    found: list[tuple[Tensor, ...]] = []
    for seed in range(3):
        torch.manual_seed(seed)
        fresh = [
            x if x.dim() > 2 and x.max() == 1 else torch.randn_like(x) if x.is_floating_point() else x for x in inputs
        ]
        found.append((*fresh, torch.randint(0, output.shape[-1], output.shape[:-1])))
    return found


def three_steps(model: nn.Module, data: Sequence[tuple[Tensor, ...]]) -> tuple[ModuleOp, float, float]:
    """The program, seconds to import it, and the largest difference to eager PyTorch."""
    eager = copy.deepcopy(model)
    start = time.perf_counter()
    module = import_step(training_step(model, per_element, optimizer), data[0])
    seconds = time.perf_counter() - start
    made, state, largest = optimizer(eager.parameters()), dict(weights_of(module)), 0.0
    names = [a for a in _names(module) if a not in state]
    for batch in data:
        made.zero_grad()
        loss = per_element(eager(*batch[:-1]), batch[-1])
        loss.backward()
        made.step()
        results = run(module, state | {n: t.numpy() for n, t in zip(names, batch, strict=True)})
        largest = max(largest, difference(loss.detach().numpy(), results["loss"]))
        tied = dict(eager.named_parameters()) | dict(eager.named_buffers())
        for name, value in tied.items():
            largest = max(largest, difference(value.detach().numpy(), results.get(name, state[name])))
        state |= {name: value for name, value in results.items() if name != "loss"}
    return module, seconds, largest


def _names(module: ModuleOp) -> list[str]:
    from distir.interpreters.entry import arguments_of, entry_function

    return [p.name for p in arguments_of(entry_function(module))]


def imported(name: str) -> tuple[ModuleOp, dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """A model's step in float64, its weights and state, and the inputs and labels of three steps."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model = model.eval().double()
    double = [x.double() if x.is_floating_point() else x for x in inputs]
    data = batches(double, model(*double))
    module = import_step(training_step(model, per_element, optimizer), data[0])
    state = dict(weights_of(module))
    names = [a for a in _names(module) if a not in state]
    return module, state, [{n: t.numpy() for n, t in zip(names, batch, strict=True)} for batch in data]


def examine(name: str, plans: Sequence[dict[str, int]] = PLANS) -> Outcome:
    """Imports the model's step, compares it to eager PyTorch, and distributes it."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model = model.train() if name == "resnet" else model.eval()
    data = batches(inputs, model(*inputs))
    double = [tuple(t.double() if t.is_floating_point() else t for t in batch) for batch in data]
    _, seconds, single = three_steps(copy.deepcopy(model), data)
    wide, _, exact = three_steps(model.double(), double)
    outcome = Outcome(seconds, sum(1 for _ in wide.walk()), {"float64": exact, "float32": single})
    values = dict(weights_of(wide))
    given = values | {
        n: t.numpy() for n, t in zip([a for a in _names(wide) if a not in values], double[0], strict=True)
    }
    for plan in plans:
        distributed = wide.clone()
        try:
            DtpParallelizePass(**plan).apply(Context(), distributed)
        except DistirError as error:
            outcome.plans[str(plan)] = str(error)
            continue
        expected, found = run(wide, given, dtype=np.float64), run(distributed, given, dtype=np.float64)
        outcome.plans[str(plan)] = max(difference(expected[key], found[key]) for key in expected)
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description="Training steps of real models through distir.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; by default all")
    parser.add_argument("--no-plans", action="store_true", help="no distributed programs")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in args.names or MODELS:
        try:
            outcome = examine(name, () if args.no_plans else PLANS)
        except DistirError as error:
            print(f"{name:8} {error}", flush=True)
            continue
        differences = "  ".join(f"{key} {value:.1e}" for key, value in outcome.differences.items())
        print(f"{name:8} {outcome.seconds:5.1f} s  {outcome.operations:5} operations  {differences}", flush=True)
        for plan, result in outcome.plans.items():
            print(f"         {plan}: {result if isinstance(result, str) else f'{result:.1e}'}", flush=True)


if __name__ == "__main__":
    main()
