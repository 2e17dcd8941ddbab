"""Training steps of real models: those of `transformers` with random weights, and a graph attention network, through distir.

    python -m benchmarks.pytorch_models [--no-plans] [--no-processes] [NAME ...]      # needs pip install 'distir[models]'

For each: CPU-seconds to import, operations, the largest difference of loss, parameters and buffers to eager PyTorch after three
steps with momentum (relative to the largest element; in float64 and in float32). Of `dtp-parallelize` with D=2 x T=2,
P=2 x K=4 (1f1b) and D=2 x T=2 x P=2: CPU-seconds to transform, the largest difference to the sequential program in float64
(`verify`), and, of as many gloo processes as the plan has devices that train the three steps, that of loss, parameters and
buffers to eager PyTorch (`train`); or why it refuses. ResNet is in training mode, for which there is `batch-shard` with D=2
too, which synchronises batch norm; `resnet_eval` has batch norm that only scales. `gpt2_dropout` is in training mode, with the
dropout of GPT-2 (0.1 of embeddings, attention weights and both blocks); eager PyTorch draws as the program does.
"""

import argparse
import copy
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from benchmarks import onnx_models
from benchmarks.arguments import one_of
from distir.backends.torch import execute
from distir.dialects.errors import DistirError
from distir.frontends.pytorch import counted_draws, import_step, training_step
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.batch_shard import BatchShardPass
from distir.passes.dtp_parallelize import DtpParallelizePass

CLASSES = 2
PLANS = ({"dp": 2, "tp": 2}, {"pp": 2, "microbatches": 4}, {"dp": 2, "tp": 2, "pp": 2})
"""The schedule is 1f1b."""


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
} | {"resnet_eval": onnx_models.resnet, "gat": gat, "gpt2_dropout": onnx_models.gpt2}
SYNCHRONISED = "batch-shard, dp=2"
TRAINED = ("resnet", "gpt2_dropout")
"""Models in training mode; the others have no batch norm, and no dropout."""


def per_element(output: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy of every row of the last dim."""
    return cross_entropy(output.flatten(0, -2), label.flatten())


@dataclass(frozen=True)
class Distributed:
    """What came of one plan of one model."""

    seconds: float
    """CPU time of the transform."""
    verified: float
    """The largest difference to the sequential program, in float64."""
    trained: float | None = None
    """Of processes that train three steps, to eager PyTorch."""

    def __str__(self) -> str:
        trained = "" if self.trained is None else f"  train {self.trained:.1e}"
        return f"{self.seconds:5.1f} s  verify {self.verified:.1e}{trained}"


@dataclass
class Outcome:
    """What came of one model."""

    seconds: float
    """CPU time of the import."""
    operations: int
    differences: dict[str, float] = field(default_factory=dict[str, float])
    plans: dict[str, Distributed | str] = field(default_factory=dict[str, "Distributed | str"])


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


Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Trained:
    """Three steps of a model, in the element types that it has."""

    module: ModuleOp
    seconds: float
    """CPU time of the import."""
    given: list[Arrays]
    """What each step is given, beside the state."""
    final: Arrays
    """Loss, parameters and buffers of eager PyTorch after them."""
    difference: float
    """The largest of the program to eager PyTorch, after any of them."""


def three_steps(model: nn.Module, data: Sequence[tuple[Tensor, ...]]) -> Trained:
    """Trains a copy of the model eagerly and the program by the reference executor."""
    eager = copy.deepcopy(model)
    start = time.process_time()
    module = import_step(training_step(model, per_element, optimizer), data[0])
    seconds = time.process_time() - start
    made, state, largest, final = optimizer(eager.parameters()), dict(weights_of(module)), 0.0, Arrays()
    names = [a for a in _names(module) if a not in state]
    given = [{n: t.numpy() for n, t in zip(names, batch, strict=True)} for batch in data]
    seed = 0
    for batch, own in zip(data, given, strict=True):
        made.zero_grad()
        with counted_draws(seed, range(len(batch[0]))) as draws:
            loss = per_element(eager(*batch[:-1]), batch[-1])
            loss.backward()
        seed = int(draws.next_seed)
        made.step()
        results = run(module, state | own)
        now = {"loss": loss.detach(), **dict(eager.named_parameters()), **dict(eager.named_buffers())}
        final = {name: value.detach().numpy() for name, value in now.items()}
        largest = max(largest, *(difference(final[n], results[n] if n in results else state[n]) for n in final))
        state |= {name: value for name, value in results.items() if name != "loss"}
    return Trained(module, seconds, given, final, largest)


def _names(module: ModuleOp) -> list[str]:
    from distir.interpreters.entry import arguments_of, entry_function

    return [p.name for p in arguments_of(entry_function(module))]


def in_float64(name: str) -> tuple[nn.Module, list[tuple[Tensor, ...]]]:
    """A model and three batches."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model = model.train(name in TRAINED)
    data = batches(inputs, model(*inputs))
    return model.double(), [tuple(t.double() if t.is_floating_point() else t for t in batch) for batch in data]


def synchronised(module: ModuleOp) -> None:
    """Distributes a step over two devices, with reductions inside it."""
    BatchShardPass(mesh="dp=2").apply(Context(), module)
    ApplyShardingPass().apply(Context(), module)


def distribute(trained: Trained, transform: Callable[[ModuleOp], None], processes: bool = True) -> Distributed:
    """Verifies a plan of a model's step, and trains it. Raises DistirError where it is refused."""
    state = dict(weights_of(trained.module))
    distributed = trained.module.clone()
    start = time.process_time()
    transform(distributed)
    seconds = time.process_time() - start
    given = state | trained.given[0]
    expected, found = (run(each, given, dtype=np.float64) for each in (trained.module, distributed))
    verified = max(difference(expected[key], found[key]) for key in expected)
    if not processes:
        return Distributed(seconds, verified)
    outputs = execute(distributed, given, following=trained.given[1:]).outputs
    final = {name: value for name, value in trained.final.items() if name in outputs}
    return Distributed(seconds, verified, max(difference(value, outputs[name]) for name, value in final.items()))


def examine(name: str, plans: Sequence[dict[str, int]] = PLANS, processes: bool = True) -> Outcome:
    """Imports the model's step, compares it to eager PyTorch, and distributes it."""
    model, data = in_float64(name)
    narrow = [tuple(t.float() if t.is_floating_point() else t for t in batch) for batch in data]
    single = three_steps(copy.deepcopy(model).float(), narrow)
    exact = three_steps(model, data)
    operations = sum(1 for _ in exact.module.walk())
    outcome = Outcome(single.seconds, operations, {"float64": exact.difference, "float32": single.difference})
    transforms = {str(plan): partial(DtpParallelizePass(**plan).apply, Context()) for plan in plans}
    if plans and name == "resnet":
        transforms[SYNCHRONISED] = synchronised
    for plan, transform in transforms.items():
        try:
            outcome.plans[plan] = distribute(exact, transform, processes)
        except DistirError as error:
            outcome.plans[plan] = str(error)
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description="Training steps of real models through distir.")
    parser.add_argument(
        "names", nargs="*", type=one_of(MODELS), metavar="NAME", help=f"of {', '.join(MODELS)}; by default all"
    )
    parser.add_argument("--no-plans", action="store_true", help="no distributed programs")
    parser.add_argument(
        "--no-processes", action="store_true", help="distributed programs by the reference executor only"
    )
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in args.names or MODELS:
        try:
            outcome = examine(name, () if args.no_plans else PLANS, not args.no_processes)
        except DistirError as error:
            print(f"{name:12} {error}", flush=True)
            continue
        differences = "  ".join(f"{key} {value:.1e}" for key, value in outcome.differences.items())
        print(f"{name:12} {outcome.seconds:5.1f} CPU-s  {outcome.operations:5} operations  {differences}", flush=True)
        for plan, result in outcome.plans.items():
            print(f"            {plan}: {result}", flush=True)


if __name__ == "__main__":
    main()
