"""What Python programs call: models come in, plans, figures, comparisons and results come out. `import distir` has all of it, and the commands of the
same names do the same. A model or program is a file or an object; a mistake is a `DistirError` of one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, cast

from distir.dialects.errors import DistirError
from distir.tools.commands.model import Program, load_executable, load_model, name_of, require_same_weights
from distir.tools.commands.simulate import simulate
from distir.tools.plans import Plan, Plans

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from distir.backends.torch import Execution
    from distir.backends.torch.parallel import DistributedStep
    from distir.interpreters.equivalence import Verification
    from distir.interpreters.global_arrays import Array
    from distir.interpreters.proof import Proof

__all__ = ["Plan", "Plans", "import_model", "parallelize", "prove", "run", "search", "simulate", "verify"]


def import_model(
    model: Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    parameters: Sequence[str] = (),
    constants: Sequence[str] = (),
    until: Sequence[str] = (),
    values: Mapping[str, float] | None = None,
) -> ModuleOp:
    """A model as a sequential program (level 1), its values attached.

    `model` is a file (.onnx, .mlir, or what a plug-in reads), `"MODULE:FUNCTION"`, an `onnx.ModelProto`, a `training_step` or `written_step`
    of `distir.frontends.pytorch`, a tuple of a PyTorch module or function and its example arguments, or an xDSL module, which is copied.
    `shapes` binds inputs, by name. The other arguments are for ONNX: tensors that are parameters or constants, values to end with, inputs that
    always have a value."""
    texts = [f"{name}={','.join(map(str, sizes))}" for name, sizes in (shapes or {}).items()]
    fixed = [f"{name}={value}" for name, value in (values or {}).items()]
    names = {"parameters": parameters, "constants": constants, "until": until, "values": fixed}
    return load_model(fspath(model) if isinstance(model, PathLike) else model, texts, names)


def search(
    model: Any,
    machine: str | PathLike[str],
    devices: int,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch_sizes: Sequence[int] | None = None,
    batch: str = "",
    microbatches: Sequence[int] | None = None,
    schedules: Sequence[str] | None = None,
    most_tensor: int | None = None,
    cost_model: str = "analytic",
    memory_limit: int | str | None = None,
    overlap: bool | None = None,
    exhaustive: bool = False,
    top: int = 10,
    **options: Any,
) -> Plans:
    """The ways to distribute a model over devices of a machine, simulated and ranked by throughput.

    `model` is what `import_model` takes; `machine` a name or a .toml file. `batch_sizes` are global batches (default: the model's);
    `batch` says which dims they are ("x:0"). `top` plans have figures, the others where bounds do not exclude them; `exhaustive` simulates all. The
    other arguments are the options of `distir search` of the same names. Raises DistirError for a mistake; a plan that the
    rules forbid, or that does not fit, is among `outcomes` with the reason."""
    from argparse import Namespace

    from distir.tools.commands.search import defaults, find_plans

    given = {
        "model": fspath(model) if isinstance(model, PathLike) else model,
        "machine": fspath(machine),
        "devices": devices,
        "shape": [f"{name}={','.join(map(str, sizes))}" for name, sizes in (shapes or {}).items()],
        "batch_sizes": _listed("batch_sizes", batch_sizes),
        "batch": batch,
        "microbatches": _listed("microbatches", microbatches),
        "schedules": _listed("schedules", schedules),
        "most_tensor": most_tensor,
        "cost_model": cost_model,
        "memory_limit": None if memory_limit is None else str(memory_limit),
        "overlap": overlap,
        "exhaustive": exhaustive,
        "top": top,
    }
    known = defaults()
    if unknown := options.keys() - known.keys():
        raise TypeError(f"search() got an unexpected argument '{min(unknown)}'")
    values = {**known, **given, **options}
    for name, default in known.items():
        kind = Integral if isinstance(default, int) else Real
        if type(default) in (int, float) and (isinstance(values[name], bool) or not isinstance(values[name], kind)):
            raise DistirError(f"{name}: expected a {'whole ' * (kind is Integral)}number, got {values[name]!r}")
    try:
        return find_plans(Namespace(**values)).plans
    except DistirError as error:
        raise DistirError(_OPTION.sub(lambda option: option[1].replace("-", "_"), str(error))) from error


_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")
"""An option of the command, as its messages write it; the argument has the same name."""


def _listed(name: str, values: Sequence[Any] | None) -> str | None:
    """A sequence as the command takes it. Raises DistirError for anything else."""
    if values is None:
        return None
    if isinstance(values, str) or not isinstance(cast(object, values), Iterable):
        raise DistirError(f"{name}: expected a list, got {values!r}")
    return ",".join(map(str, values))


def parallelize(
    model: Any,
    optimizer: Any,
    loss: Any,
    plan: Program | Mapping[str, Any],
    example_args: Sequence[Any] = (),
) -> DistributedStep:
    """A training step to call in one's own loop, in every process that torchrun started: `loss = step(*batch)`, on global batches.

    `model` is a torch.nn.Module, `loss(output, label)` a scalar, `optimizer` one over its parameters. `plan` is a distributed program of this step (a file, a
    module or a plan; parameters are the model's), or the options of `dtp-parallelize` ({"dp": 2}), for which `example_args` are a batch. `step.copy_to(model)` writes
    what was trained to the model on rank 0. A learning rate that is a tensor (`lr=torch.tensor(1e-3)`) follows a scheduler; other numbers of the
    optimizer may not change."""
    from distir.backends.torch.parallel import DistributedStep
    from distir.interpreters.weights import attach, weights_of

    if not isinstance(plan, Mapping):
        program = load_executable(plan)
        own = {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}
        attach(program, {**weights_of(program), **own})
        return DistributedStep(program, optimizer)
    from xdsl.context import Context

    from distir.frontends.pytorch import import_step, training_step
    from distir.passes.dtp_parallelize import DtpParallelizePass

    program = import_step(training_step(model, loss, optimizer, example_args=example_args), example_args)
    values = weights_of(program)
    if plan:
        DtpParallelizePass(**plan).apply(Context(), program)
        attach(program, values)
    return DistributedStep(program, optimizer)


def verify(
    sequential: Program,
    distributed: Program,
    inputs: Mapping[str, Array] | None = None,
    *,
    tolerance: float = 1e-10,
    dtype: Any = "float64",
) -> Verification:
    """Whether two programs compute the same, found by running both in this process on several draws of all values that are not among `inputs`.
    `holds` says so, `comparisons` has each output."""
    import numpy as np

    from distir.interpreters.equivalence import verify
    from distir.tools.commands.capacity import check_memory

    names = _names(sequential, distributed)
    one, other = load_executable(sequential), load_executable(distributed)
    require_same_weights(one, other, names)
    for name, module in zip(names, (one, other), strict=True):
        check_memory(module, name, np.dtype(dtype).itemsize)
    return verify(one, other, inputs or {}, tolerance=tolerance, dtype=np.dtype(dtype), names=names)


def prove(sequential: Program, distributed: Program) -> Proof:
    """Whether the distributed program is proven to compute the sequential one, without running either. True in a condition if it is."""
    from distir.interpreters.proof import prove
    from distir.passes.decompose import prepare_like

    one, other = load_executable(sequential), load_executable(distributed)
    require_same_weights(one, other, _names(sequential, distributed))
    prepare_like(one, other)
    return prove(one, other)


def _names(sequential: Program, distributed: Program) -> tuple[str, str]:
    """What two programs are called in an error."""
    return name_of(sequential, "the first"), name_of(distributed, "the second")


def run(
    program: Program,
    inputs: Mapping[str, Array] | None = None,
    *,
    backend: str = "gloo",
    measure: int = 0,
    seed: int = 0,
    timeout_seconds: float | None = 300.0,
) -> Execution:
    """Runs a program of level 1 to 3 on torch.distributed, one process per device of it; `outputs` are global arrays by name. Inputs and weights that
    are neither given nor attached are drawn with `seed`. `measure` repeats the run that many times, and `seconds` is their median."""
    from distir.backends.torch import execute
    from distir.interpreters.entry import arguments_of, entry_function
    from distir.interpreters.inputs import draw_inputs
    from distir.interpreters.weights import weights_of
    from distir.tools.commands.capacity import check_memory

    module = load_executable(program)
    if backend != "nccl":
        check_memory(module, name_of(program, "the program"))
    names = list(dict.fromkeys(port.name for port in arguments_of(entry_function(module, "main"))))
    values = dict(inputs or {})
    if unknown := values.keys() - set(names):
        raise DistirError(f"no input '{min(unknown)}'; the inputs are {', '.join(names)}")
    weights = weights_of(module)
    if missing := [name for name in names if name not in values and name not in weights]:
        values |= draw_inputs(module, seed, names=missing)
    return execute(module, values, backend, measure=measure, timeout_seconds=timeout_seconds)
