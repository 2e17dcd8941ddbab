"""A plan in one's own training loop. In goes a program of level 1 or 3 with its values, out comes a step to call in every process that torchrun started:

step = DistributedStep(program)
for tokens, labels in batches:      # global batches, the same in every process
    loss = step(tokens, labels)
step.copy_to(model)                 # what was trained, whole, on rank 0
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from xdsl.dialects.builtin import ModuleOp

from distir.backends.torch.elements import ElementTypes
from distir.backends.torch.emission import BATCH, ports
from distir.backends.torch.fetches import begun_by_callers
from distir.backends.torch.launch import communication_groups
from distir.backends.torch.portable import distir_arrays, distir_runtime
from distir.backends.torch.program import Program
from distir.dialects.errors import DistirError
from distir.interpreters.entry import entry_function, machine_devices
from distir.interpreters.ranks import explicit
from distir.interpreters.weights import weights_of


class DistributedStep:
    """This process's part of a training step. It holds parameters and state between calls."""

    def __init__(self, module: ModuleOp, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Meets the other processes, unless torch.distributed has. What the optimizer's numbers become (a scheduler's learning rate) holds from the next call on.
        Raises DistirError where there are more or fewer processes than the program has devices."""
        from distir.passes.project_to_rank import project

        weights, module = weights_of(module), begun_by_callers(explicit(module))
        world = machine_devices(module, entry_function(module, "main"))
        if not dist.is_initialized() and (world > 1 or "RANK" in os.environ):
            if "MASTER_ADDR" not in os.environ:
                raise DistirError(
                    f"the plan is of {world} processes: start the script with torchrun --nproc-per-node={world}"
                )
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        rank, here = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        if here != world:
            raise DistirError(f"the plan is of {world} processes, {here} are here: torchrun --nproc-per-node={world}")
        self.rank, device = rank, torch.device("cpu")
        if dist.is_initialized() and dist.get_backend() == "nccl":
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
        programs = [project(module, each) for each in range(world)]
        distir_runtime.start(rank, device, communication_groups(programs))
        self._ports = ports(programs)
        self.arguments, self.results = self._ports[rank]["arguments"], self._ports[rank]["results"]
        self._main = Program(programs[rank], ElementTypes(), device).function("main")
        made = {distir_arrays.key(port): i for i, port in enumerate(self.results)}
        self._updates = {i: made[k] for i, port in enumerate(self.arguments) if (k := distir_arrays.key(port)) in made}
        if lost := distir_arrays.lost(*([each[kind] for each in self._ports] for kind in ("arguments", "results"))):
            raise DistirError(
                f"{lost[0]} leaves the step in other parts than it enters, so no step can follow: distribute it anew"
            )
        names = [
            port["name"] for each in self._ports for port in each["arguments"] if port["role"] in (*BATCH, "output")
        ]
        self.inputs = list(dict.fromkeys(names))
        """What a call is given, in order."""
        self._values: list[Any] = [
            None if port["name"] in self.inputs else distir_arrays.placed(_tensor(weights, port["name"]), port)
            for port in self.arguments
        ]

        self._optimizer, self._numbers = optimizer, numbers_of(optimizer)
        self._followed: dict[str, Any] = {}
        if optimizer is not None:
            optimizer.register_step_pre_hook(_refuse("the step updates the parameters: leave out optimizer.step()"))

    def _follow_optimizer(self) -> None:
        """Gives the program the optimizer's numbers that are tensors there. Raises DistirError if another, which the program has as a constant, has changed."""
        own = {port["name"] for each in self._ports for port in each["arguments"] if port["role"] == "state"}
        for name, number in numbers_of(self._optimizer).items():
            if name in own and self._followed.get(name) != number:
                self._followed[name] = number
                for i, port in enumerate(self.arguments):
                    if port["name"] == name:
                        value = torch.tensor(number, dtype=self._values[i].dtype)
                        self._values[i] = distir_arrays.placed(value, port)
            elif name not in own and self._numbers.get(name, number) != number:
                raise DistirError(
                    f"{name} of the optimizer was {self._numbers[name]} when the step was made and is {number}: "
                    "what changes has to be a tensor there, as in lr=torch.tensor(1e-3)"
                )

    def __call__(self, *batch: Tensor, **named: Tensor) -> Tensor:
        """One step on a global batch, by position or by name; its loss, in every process."""
        self._follow_optimizer()
        given = dict(zip(self.inputs, batch, strict=False)) | named
        if given.keys() != set(self.inputs) or len(batch) > len(self.inputs):
            raise DistirError(
                f"the step takes {', '.join(self.inputs)}, got {len(batch)} values and {', '.join(named) or 'no names'}"
            )
        for i, port in enumerate(self.arguments):
            if port["name"] in given:
                if list(given[port["name"]].shape) != port["shape"]:
                    raise DistirError(
                        f"{port['name']}: expected shape {port['shape']}, got {list(given[port['name']].shape)}"
                    )
                self._values[i] = distir_arrays.placed(given[port["name"]], port)
        with torch.inference_mode():
            results = distir_runtime.step(self._main, self._values, self._updates)
            loss = self._loss(results)
        value = torch.tensor(loss)
        setattr(value, "backward", _refuse("the step has done the backward part: leave out loss.backward()"))
        if self._optimizer is not None:
            setattr(self._optimizer, "_opt_called", True)  # what schedulers look at
        return value

    def _loss(self, results: list[Any]) -> float:
        mine = [
            (port["reduction"], results[i].double().item())
            for i, port in enumerate(self.results)
            if port["role"] == "output" and all(n == 1 for n in port["shape"])
        ]
        told: list[Any] = [mine]
        if dist.is_initialized():
            told = [None] * dist.get_world_size()
            dist.all_gather_object(told, mine)
        total: Any = None
        for reduction, value in (each for one in told for each in one[:1]):
            total = distir_arrays.combined(reduction, total, value) if total is not None and reduction else value
        return float("nan") if total is None else total

    def state_dict(self, optimizer: bool = False) -> dict[str, Tensor]:
        """Parameters and buffers, whole, by the model's names, on rank 0; empty in the others. All processes call it. With `optimizer`, its state too,
        by the program's names (`state.0.weight.exp_avg`)."""
        roles = ("parameter", "buffer", "state") if optimizer else ("parameter", "buffer")
        listed = [each["arguments"] for each in self._ports]
        names = [p["name"] for here in listed for p in here if p["role"] in roles]
        with torch.inference_mode():
            found = distir_arrays.collected(listed, self._values, list(dict.fromkeys(names)))
            values = {name: value for name, value in found if value is not None}
        return {name: value.clone() for name, value in values.items()}  # ordinary tensors, not of inference mode

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from these values, whole, by the names of `state_dict`, the same in every process. Without any of the optimizer's state, that stays as it is.
        Raises DistirError for a value that is missing, or of another shape."""
        ports = [port for each in self._ports for port in each["arguments"]]
        with_state = any(port["role"] == "state" and port["name"] in state for port in ports)
        roles = ("parameter", "buffer", "state") if with_state else ("parameter", "buffer")
        for port in ports:  # those of all ranks: all raise, or none
            if port["role"] in roles:
                if port["name"] not in state:
                    raise DistirError(f"load_state_dict: no value for {port['name']}")
                if list(state[port["name"]].shape) != port["shape"]:
                    found = list(state[port["name"]].shape)
                    raise DistirError(f"load_state_dict: {port['name']} has shape {found}, expected {port['shape']}")
        for i, port in enumerate(self.arguments):
            if port["role"] in roles:
                self._values[i] = distir_arrays.placed(state[port["name"]], port)
        self._followed.clear()  # what the optimizer's numbers are counts

    def copy_to(self, model: nn.Module) -> None:
        """Writes what was trained to the model, on rank 0. All processes call it."""
        if state := self.state_dict():
            model.load_state_dict(state, strict=False)


def _tensor(weights: Mapping[str, Any], name: str) -> Tensor:
    if name not in weights:
        raise DistirError(f"the program has no value for {name}: import the model with its values")
    return ElementTypes().tensor(weights[name], torch.device("cpu"))


def numbers_of(optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """What the optimizer's groups say, by the name that it has in a program: `param_groups.0.lr`."""
    return {
        f"param_groups.{i}.{key}": value.tolist() if isinstance(value, Tensor) else value
        for i, group in enumerate(optimizer.param_groups if optimizer is not None else [])
        for key, value in group.items()
        if key != "params"
    }


def _refuse(why: str) -> Callable[..., None]:
    def refuse(*_: Any, **__: Any) -> None:
        raise DistirError(why)

    return refuse
