"""A user's step with all that it remembers from run to run (parameters, buffers, state of optimizers). In go the
step and its modules and optimizers; out comes a function of named tensors, which stand for the remembered ones while the user's code runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import torch.utils.checkpoint as checkpoints
from torch import Tensor, nn

from distir.dialects.errors import DistirError
from distir.frontends.pytorch.arguments import Results, described
from distir.frontends.pytorch.averages import choosing_averages
from distir.frontends.pytorch.optimizers import OptimizerMemory, wrapped_by
from distir.frontends.pytorch.scalers import ScalerMemory
from distir.frontends.pytorch.schedules import ScheduleTable
from distir.frontends.pytorch.substitutes import Substitutes, in_modules
from distir.frontends.pytorch.watched_numbers import Decisions, is_number, plain

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Port:
    """One argument: an example of it (its data is not looked at) and, where there is one, its value. One that is optional
    leaves the program, with its update, when nothing reads it."""

    name: str
    role: str
    example: Tensor
    value: Tensor | None = None
    optional: bool = False


@dataclass(frozen=True)
class TracedFunction:
    """`run` takes tensors by name, in the order of the ports, and returns results by (name, role). `eager` runs the
    user's code as it is: it takes the inputs alone, and what is remembered is where it was. `keeps` are the Python objects that
    a run may change."""

    name: str
    ports: Sequence[Port]
    run: Callable[[Tensors], Results]
    eager: Callable[[Tensors], Results]
    keeps: Sequence[object] = ()
    remembering: Remembering | None = None

    def original(self, tensor: Tensor) -> Tensor:
        """The parameter or buffer that a tensor stood for to the end of the last run; the tensor itself if it stood for none."""
        return tensor if self.remembering is None else self.remembering.stood_for.get(id(tensor), tensor)

    def leftovers(self) -> list[str]:
        """What the last run left in optimizers beside the tensors that they remember."""
        memories = () if self.remembering is None else self.remembering.memories
        return [name for memory in memories for name in memory.leftovers()]

    def left(self) -> list[dict[Any, Any]]:
        """What the last run left there, for `put_left`."""
        return [] if self.remembering is None else [dict(memory.left) for memory in self.remembering.memories]

    def put_left(self, left: Sequence[dict[Any, Any]]) -> None:
        """The next run finds this there."""
        for memory, each in zip(self.remembering.memories if self.remembering is not None else (), left, strict=True):
            memory.left = dict(each)

    def watch(self, decisions: Decisions) -> None:
        """Numbers that the last run left there tell from now on what is decided by them."""
        watched = [
            {path: decisions.watched(plain(leaf)) if is_number(leaf) else leaf for path, leaf in each.items()}
            for each in self.left()
        ]
        self.put_left(watched)


class Remembering:
    """A step of a user's, and all that it remembers: parameters and buffers of modules, by their names in `state_dict()` and
    tied ones once, what optimizers and scalers remember, and gradients, where a step begins with those of the last."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[Port],
        modules: Mapping[str, nn.Module],
        optimizers: Sequence[torch.optim.Optimizer] = (),
        schedules: Mapping[Any, int] | None = None,
        scalers: Sequence[Any] = (),
        *,
        parameters: Mapping[str, nn.Parameter] | None = None,
        gradients: bool = False,
        also: Sequence[object] = (),
    ) -> None:
        self.name, self.inputs, self.modules, self.gradients, self.also = name, inputs, modules, gradients, also
        self.parameters: dict[str, Tensor] = dict(parameters or {})
        self.buffers: dict[str, Tensor] = {}
        self.substitutes: Tensors = {}
        self.stood_for: dict[int, Tensor] = {}
        seen: set[int] = set()
        for prefix, module in modules.items():
            for role, found in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
                into = self.parameters if role == "parameter" else self.buffers
                fresh = [(each, tensor) for each, tensor in found if id(tensor) not in seen]
                seen |= {id(tensor) for _, tensor in fresh}
                into |= {_full_name(prefix, each): tensor for each, tensor in fresh}
        inner = [each for outer in optimizers for each in wrapped_by(outer)]
        different = {id(each): each for each in [*optimizers, *inner]}.values()
        self.trained = {name: parameter.requires_grad for name, parameter in self.parameters.items()}
        self.memories = [OptimizerMemory(each, self.parameters) for each in different]
        self.tables = [ScheduleTable(each, steps, self.memories) for each, steps in (schedules or {}).items()]
        self.scalers = [ScalerMemory(each) for each in scalers]

    def ports(self) -> list[Port]:
        """Arguments: inputs, parameters, buffers, then state."""
        found = [*self.inputs, *(Port(n, "parameter", p, value_of(p)) for n, p in self.parameters.items())]
        found += [Port(n, "buffer", b, value_of(b)) for n, b in self.buffers.items()]
        for number, memory in enumerate(self.memories):
            tensors = [(self._state_name(number, each.name), each.initial) for each in memory.tensors]
            found += [Port(name, "state", tensor, value_of(tensor), True) for name, tensor in tensors]
        for each in (*self.tables, *self.scalers):
            found += [Port(name, role, tensor, tensor) for name, role, tensor in each.ports()]
        if self.gradients:
            for name, parameter in self.parameters.items():
                like = torch.zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)
                value = parameter.grad if parameter.grad is not None else like
                found.append(Port(f"grad.{name}", "state", like, value_of(value), True))
        names = [port.name for port in found]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise DistirError(f"{self.name}: two of its tensors are called '{twice}': give its modules other names")
        return found

    def now(self) -> Results:
        """What it remembers, outside of a program: parameters, buffers, and state that is there yet."""
        found: Results = {(n, "parameter"): p for n, p in self.parameters.items()}
        for prefix, module in self.modules.items():
            found |= {(_full_name(prefix, n), "buffer"): b for n, b in module.named_buffers()}
        for number, memory in enumerate(self.memories):
            found |= {(self._state_name(number, n), "state"): t for n, t in memory.now().items()}
        return found

    def _originals(self) -> Results:
        parameters = {(name, "parameter"): tensor for name, tensor in self.parameters.items()}
        return parameters | {(name, "buffer"): tensor for name, tensor in self.buffers.items()}

    def _state_name(self, number: int, name: str) -> str:
        """The name, with the optimizer's number before it where an optimizer before has it too."""
        taken = any(each.name == name for memory in self.memories[:number] for each in memory.tensors)
        return f"optimizer{number}.{name}" if taken else name

    def traced(
        self, body: Callable[[Tensors], Results], eager: Callable[[Tensors], Results] | None = None
    ) -> TracedFunction:
        """The step as a function of all its ports; `body` takes the inputs by name, and so does `eager`, if that is another."""

        def run(tensors: Tensors) -> Results:
            with self._standing(tensors):
                results = body(tensors)
                self._check_parameters()
                own = {name for name, _ in results}
                if taken := own & {*self.parameters, *self.buffers}:
                    results = {(f"output.{n}" if n in taken else n, role): t for (n, role), t in results.items()}
                updates = self._updates()
                self.stood_for = {
                    id(updates[key]): original
                    for key, original in self._originals().items()
                    if updates.get(key) is self.substitutes[key[0]]
                }
                return results | updates

        keeps = [*self.modules.values(), *(memory.optimizer for memory in self.memories), *self.also]
        return TracedFunction(self.name, self.ports(), run, eager or body, keeps, self)

    @contextmanager
    def _standing(self, tensors: Tensors) -> Generator[None]:
        """These tensors stand for everything that the step remembers."""
        made: Tensors = {
            name: nn.Parameter(tensors[name].detach(), requires_grad=original.requires_grad)
            for name, original in self.parameters.items()
        }
        made |= {name: tensors[name].detach() for name in self.buffers}
        self.substitutes = made
        originals = self.parameters | self.buffers
        substitutes = Substitutes((originals[name], tensor) for name, tensor in made.items())
        by_id = {id(originals[name]): tensor for name, tensor in made.items()}
        with ExitStack() as stack:
            stack.enter_context(_compiling_nothing())
            stack.enter_context(choosing_averages())
            # Otherwise what a policy of selective checkpointing recomputes is only marked.
            stack.enter_context(patch.object(checkpoints, "_is_compiling", _compiles_nothing))
            stack.enter_context(in_modules(self.modules.values(), by_id))
            for number, memory in enumerate(self.memories):
                own = {each.name: tensors[self._state_name(number, each.name)] for each in memory.tensors}
                stack.enter_context(memory.remembering({n: t.detach() for n, t in own.items()}))
            for each in (*self.tables, *self.scalers):
                stack.enter_context(each.standing({n: tensors[n].detach() for n, _, _ in each.ports()}))
            if self.gradients:
                for name in self.parameters:
                    if made[name].requires_grad:
                        made[name].grad = tensors[f"grad.{name}"].detach()
            stack.enter_context(substitutes.hooks())
            stack.enter_context(substitutes)
            yield

    def _check_parameters(self) -> None:
        """That the step trains what it trained before."""
        stands = {id(tensor): name for name, tensor in self.substitutes.items()}
        for prefix, module in self.modules.items():
            for name, parameter in module.named_parameters():
                if (known := stands.get(id(parameter))) is None:
                    raise DistirError(
                        f"{self.name} makes the parameter {_full_name(prefix, name)} anew: write to the one that there is (torch.no_grad())"
                    )
                if parameter.requires_grad != self.trained[known]:
                    raise DistirError(
                        f"{self.name} changes whether {known} is trained, so its next run is another: do it before the step"
                    )

    def _updates(self) -> Results:
        """What everything is after the step."""
        found: Results = {(n, "parameter"): self.substitutes[n] for n in self.parameters}
        for prefix, module in self.modules.items():
            now = {_full_name(prefix, n): t for n, t in module.named_buffers()}
            for name, tensor in now.items():
                if name in self.buffers:
                    if (tensor.shape, tensor.dtype) != (self.buffers[name].shape, self.buffers[name].dtype):
                        raise DistirError(
                            f"{self.name}: buffer {name} becomes {described(tensor)}, expected the shape and type that it has"
                        )
                    found[name, "buffer"] = tensor
        for number, memory in enumerate(self.memories):
            found |= {(self._state_name(number, n), "state"): t for n, t in memory.remembered().items()}
        for each in (*self.tables, *self.scalers):
            found |= each.updates()
        for name in self.parameters if self.gradients else ():
            if (gradient := self.substitutes[name].grad) is not None:
                found[f"grad.{name}", "state"] = gradient
        return found


def _full_name(prefix: str, name: str) -> str:
    name = ".".join(word for word in name.split(".") if word != "_orig_mod")
    return f"{prefix}.{name}" if prefix else name


@contextmanager
def _compiling_nothing() -> Generator[None]:
    """What is compiled runs as it was written meanwhile."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    from torch._dynamo import config

    with config.patch(error_on_nested_fx_trace=False), torch.compiler.set_stance("force_eager"):  # pyright: ignore
        yield


def _compiles_nothing(*_: Any) -> bool:
    return False


def value_of(tensor: Tensor) -> Tensor | None:
    return None if tensor.is_meta else tensor.detach()
