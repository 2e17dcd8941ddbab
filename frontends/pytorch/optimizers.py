"""Optimizers of torch.optim, or of the user. In goes an optimizer; out come named tensors that it remembers from
step to step: its state, counters, learning rates that are tensors. Its own `step` is traced, over all its parameters at once.

These tensors are found by running it on tensors without data. Its counters, and the first values of new state, are
found by running it three steps on small parameters, whose results are compared with those of the optimizer as it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree

from distir.dialects.errors import DistirError
from distir.frontends.pytorch.memory_trees import RecordedEntry, is_same, leaves_of, path_name, plain, put, with_leaves
from distir.frontends.pytorch.reasons import reason_of
from distir.frontends.pytorch.side_effects import like_left
from distir.frontends.pytorch.substitutes import Substitutes
from distir.frontends.pytorch.tensor_numbers import tensors_as_numbers

Memory = dict[str, Any]
"""What an optimizer remembers, with tensors and numbers as its leaves: `state` by the name of a parameter, `param_groups`
without parameters, `attributes` of its own."""

TRACEABLE = {"foreach": False, "fused": False, "capturable": True}
"""Options that say how a step runs, not what it computes."""
EAGER = {"foreach": False, "fused": False, "capturable": False}
SMALL_STEPS, SMALL_SIZE = 3, 3


@dataclass(frozen=True)
class StateTensor:
    """One tensor that an optimizer remembers, where (`path`), and what it is before the next step."""

    name: str
    path: tuple[Any, ...]
    initial: Tensor


class OptimizerMemory:
    """What an optimizer over named parameters remembers: `tensors`, and `rest`, which does not change."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> None:
        """Raises DistirError for an update that depends on the values of tensors as Python numbers, and for state that starts
        at what no argument of a program can be."""
        self.optimizer, self.what = optimizer, type(optimizer).__name__
        names = {id(parameter): name for name, parameter in parameters.items()}
        own = [p for group in optimizer.param_groups for p in group["params"]]
        if any(id(p) not in names for p in own if p.requires_grad):
            raise DistirError(f"{self.what} holds a parameter that is not the model's: give it only those")
        self.parameters = {names[id(p)]: p for p in own if id(p) in names}
        self._names = names
        self._trains = self._members()
        self._before = self._read()
        self.rest: Memory = self._before
        self.tensors: list[StateTensor] = []
        self.left: dict[tuple[Any, ...], Any] = {}
        self._narrow: dict[tuple[Any, ...], torch.dtype] = {}
        self._small_type = torch.get_default_dtype()
        self._example_of = self._examples()
        self._of_scalars = self._like_scalars()
        self._find()

    def _members(self) -> list[list[int]]:
        return [[id(parameter) for parameter in group["params"]] for group in self.optimizer.param_groups]

    # What is remembered, out of the optimizer and into it

    def _read(self) -> Memory:
        state = {self._names.get(id(key), str(key)): plain(entry) for key, entry in self.optimizer.state.items()}
        groups = [{k: plain(v) for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        own = {k: v for k, v in vars(self.optimizer).items() if isinstance(v, Tensor) or type(v) in (int, float)}
        return {"state": state, "param_groups": groups, "attributes": own}

    def _write(self, memory: Memory, entry: Callable[[], dict[str, Any]] = dict) -> None:
        keys = {name: parameter for name, parameter in self.parameters.items()}
        state: dict[Any, Any] = defaultdict(entry)
        for name, entries in memory["state"].items():
            state[keys.get(name, name)] = plain(entries)
        self.optimizer.state = cast(Any, state)
        for group, options in zip(self.optimizer.param_groups, memory["param_groups"], strict=True):
            group.update(options)
        for name, value in memory["attributes"].items():
            setattr(self.optimizer, name, value)

    @contextmanager
    def _put_back(self) -> Generator[None]:
        """Everything that the optimizer has is as it was, afterwards."""
        optimizer = self.optimizer
        own, groups = dict(vars(optimizer)), [dict(group) for group in optimizer.param_groups]
        members, inner = list(optimizer.param_groups), wrapped_by(optimizer)
        states = [each.state for each in inner]
        try:
            yield
        finally:
            vars(optimizer).clear()
            vars(optimizer).update(own)
            optimizer.param_groups[:] = members
            for group, options in zip(optimizer.param_groups, groups, strict=True):
                group.clear()
                group.update(options)
            for each, state in zip(inner, states, strict=True):
                each.state = state

    @contextmanager
    def remembering(self, tensors: Mapping[str, Tensor]) -> Generator[None]:
        """The optimizer remembers these meanwhile, by `StateTensor.name`, and its steps can be traced."""
        with self._put_back():
            given = {each.path: tensors[each.name] for each in self.tensors}
            self._write(with_leaves(self.rest, self.left | given))
            for path, leaf in self.left.items():
                if path[0] == "state":
                    put(self.optimizer.state, [self.parameters.get(path[1], path[1]), *path[2:]], leaf)
            with self._traceable():
                yield

    def remembered(self) -> dict[str, Tensor]:
        """What the optimizer remembers now, by `StateTensor.name`; within `remembering`. What else a step changed is kept
        for the next run."""
        if self._members() != self._trains:
            raise DistirError(f"{self.what} has other parameters after the step: add groups before it")
        now, rest = dict(leaves_of(self._read())), dict(leaves_of(self.rest))
        slots = {each.path for each in self.tensors}
        changed = {path: leaf for path, leaf in now.items() if path not in slots and not is_same(leaf, rest.get(path))}
        self.left = {path: like_left(leaf) for path, leaf in changed.items() if path[-1] not in TRACEABLE}
        found = {each.name: (each.path, now[each.path]) for each in self.tensors if each.path in now}
        return {name: self._rounded(path, leaf) for name, (path, leaf) in found.items() if isinstance(leaf, Tensor)}

    def _rounded(self, path: tuple[Any, ...], tensor: Tensor) -> Tensor:
        return tensor.to(self._narrow[path]).to(tensor.dtype) if path in self._narrow else tensor

    def _held_narrow(self) -> list[tuple[Tensor, torch.dtype]]:
        """The numbers that the optimizer remembers in a type narrower than that of a program, with their types."""
        leaves = dict(leaves_of(self._read()))
        return [(leaves[path], dtype) for path, dtype in self._narrow.items() if isinstance(leaves.get(path), Tensor)]

    def leftovers(self) -> list[str]:
        """What the last step changed beside these tensors, in words."""
        return [f"{path_name(path)} of {self.what}" for path in self.left]

    def now(self) -> dict[str, Tensor]:
        """What the optimizer remembers outside of a program, where it is there yet."""
        now = dict(leaves_of(self._read()))
        return {each.name: torch.as_tensor(now[each.path]) for each in self.tensors if each.path in now}

    def held(self) -> list[Tensor]:
        """The tensors that the optimizer has, parameters aside."""
        return [leaf for _, leaf in leaves_of(self._read()) if isinstance(leaf, Tensor)]

    @contextmanager
    def _traceable(self) -> Generator[None]:
        """Options are those of a step that can be traced; numbers may be tensors while it runs, behind the hooks before
        it and ahead of those after it."""
        for group in self.optimizer.param_groups:
            group.update({key: value for key, value in TRACEABLE.items() if key in group})
        vars(self.optimizer)["_step_supports_amp_scaling"] = False
        running = ExitStack()

        def start(*_: Any) -> None:
            running.enter_context(tensors_as_numbers(self._held_narrow()))

        def stop(*_: Any) -> None:
            running.close()

        before = self.optimizer.register_step_pre_hook(start)
        after = self.optimizer.register_step_post_hook(stop)
        self.optimizer._optimizer_step_post_hooks.move_to_end(after.id, last=False)  # pyright: ignore
        try:
            with running:
                yield
        finally:
            before.remove()
            after.remove()

    # What it will remember

    def _find(self) -> None:
        known = bool(self.optimizer.state)
        try:
            try:
                first = self._after_a_step()
                small, changing, starts = self._small_steps()
            except _Unrunnable:
                # It may want a gradient of every parameter, or state that names no type in that of the parameters.
                self._example_of = {name: name for name in self.parameters}
                self._small_type = torch.float64
                first = self._after_a_step()
                small, changing, starts = self._small_steps()
        except _Unrunnable as error:
            if "closure" in str(error) or isinstance(error.__cause__, AssertionError | NotImplementedError):
                self._slots({path for path, leaf in leaves_of(self._before) if isinstance(leaf, Tensor)}, {})
                return
            raise DistirError(
                f"{self.what} has no program, its step cannot be traced: {error}; Adam, AdamW, SGD and most of torch.optim have one"
            ) from error
        before = dict(leaves_of(self._before))
        initial: dict[tuple[Any, ...], Tensor] = {}
        for path, leaf in leaves_of(first):
            of_example = self._in_example(path)
            start = before.get(path, starts.get(of_example, 0.0))
            if isinstance(leaf, Tensor):
                initial[path] = self._initial(path, leaf, start)
            elif of_example in changing:
                initial[path] = torch.tensor(float(start), dtype=torch.float64)
        self.rest = first if not known else with_leaves(first, before)
        self._slots(set(initial), initial)
        if not known:
            self._check_start(small, starts)

    def _examples(self) -> dict[str, str]:
        """By parameter, the one that is looked at for it: of parameters of one kind the first two, so that many layers take no
        longer than two."""
        if self.optimizer.state:
            return {name: name for name in self.parameters}
        found: dict[str, str] = {}
        kinds: dict[object, list[str]] = defaultdict(list)
        for number, group in enumerate(self.optimizer.param_groups):
            for p in group["params"]:
                if (name := self._names.get(id(p))) is not None:
                    alike = kinds[number, p.shape, p.dtype, p.requires_grad]
                    alike.append(name)
                    found[name] = name if len(alike) <= 2 else alike[0]
        return found

    def _in_example(self, path: tuple[Any, ...]) -> tuple[Any, ...]:
        return ("state", self._example_of.get(path[1], path[1]), *path[2:]) if path[0] == "state" else path

    def _trained(self) -> dict[str, Tensor]:
        """The parameters that are looked at and have gradients."""
        return {n: p for n, p in self.parameters.items() if p.requires_grad and self._example_of[n] == n}

    def _like_scalars(self) -> set[tuple[Any, ...]]:
        """What is remembered already of parameters without dims and is as they are, where what counts steps is a number: by a step from
        nothing, on parameters of one element."""
        scalars = {n for n, p in self.parameters.items() if not p.dim() and n in self._before["state"]}
        if not scalars:
            return set()
        stand_ins, gradients = self._small(0)
        with suppress(_Unrunnable):
            after = self._steps(stand_ins, gradients[:1], self._before | {"state": {}}, False)[-1]
            found = [(path, leaf) for path, leaf in leaves_of(after) if path[0] == "state" and path[1] in scalars]
            return {path for path, leaf in found if isinstance(leaf, Tensor) and leaf.dim()}
        return set()

    def _slots(self, paths: set[tuple[Any, ...]], initial: Mapping[tuple[Any, ...], Tensor]) -> None:
        leaves = dict(leaves_of(self.rest))
        found = [(path, initial.get(path, leaves[path])) for path in leaves if path in paths]
        self.tensors = [StateTensor(path_name(path), path, tensor) for path, tensor in found]

    def _initial(self, path: tuple[Any, ...], example: Tensor, start: Any) -> Tensor:
        if isinstance(start, Tensor):
            return start.detach().to(example.dtype, copy=True)  # the optimizer's own is written to by its next step
        parameter = self.parameters.get(path[1]) if path[0] == "state" else None
        if start is _PARAMETER and parameter is not None:
            return parameter.detach().to(example.dtype)
        device = "meta" if parameter is not None and parameter.is_meta and example.dim() else "cpu"
        return _filled(example, float(start), device)

    def _after_a_step(self) -> Memory:
        """What is remembered after one step, as tensors without data; counters are float64, as in a program."""

        def fake(path: tuple[Any, ...], leaf: Tensor) -> Tensor:
            counts = not leaf.dim() and path not in self._of_scalars
            return torch.empty(leaf.shape, dtype=torch.float64 if counts else leaf.dtype)

        with FakeTensorMode(allow_non_fake_inputs=True):
            held = [(path, leaf) for path, leaf in leaves_of(self._before) if path[0] == "state"]
            fakes = {path: fake(path, leaf) for path, leaf in held if isinstance(leaf, Tensor)}
            before = with_leaves(self._before, fakes)
            stand_ins = {n: torch.empty(p.shape, dtype=p.dtype) for n, p in self.parameters.items()}
            gradients = {n: torch.empty_like(stand_ins[n]) for n in self._trained()}
            found = self._steps(stand_ins, [gradients], before, True)[-1]
        state = found["state"]
        others = {n: of for n, of in self._example_of.items() if n not in state and of in state}
        ordered = {n: plain(state[others.get(n, n)]) for n in self.parameters if others.get(n, n) in state}
        return found | {"state": ordered | {key: entry for key, entry in state.items() if key not in ordered}}

    def _small_steps(self) -> tuple[list[dict[str, Tensor]], set[tuple[Any, ...]], dict[tuple[Any, ...], Any]]:
        """Small parameters after each of three steps by the optimizer as it is; what changes as a number; and what
        tensors and numbers of a new state start at."""
        stand_ins, gradients = self._small(0)
        entries: dict[str, RecordedEntry] = {}
        seen: list[dict[str, Tensor]] = []
        memories = self._steps(stand_ins, gradients, self._small_memory(), False, entries, seen)
        known = [dict(leaves_of(memory)) for memory in memories]
        before = dict(leaves_of(self._before))
        narrow = {
            path: leaf.dtype for path, leaf in known[-1].items() if _is_narrow(leaf, [of.get(path) for of in known])
        }
        of_examples = {n: [e for e, of in self._example_of.items() if of == n] for n in self._example_of.values()}
        self._narrow = {
            ("state", name, *path[2:]): dtype
            for path, dtype in narrow.items()
            if path[0] == "state"
            for name in of_examples.get(path[1], [path[1]])
        }
        changing = {
            path
            for path, leaf in known[-1].items()
            if type(leaf) in (int, float) and len({each.get(path) for each in known} | {before.get(path, leaf)}) > 1
        }
        others: dict[str, RecordedEntry] = {}
        self._steps(*self._small(1), self._small_memory(), False, others)
        starts: dict[tuple[Any, ...], Any] = {}
        for name, entry in entries.items():
            for key, value in entry.first.items():
                starts["state", name, key] = _start(value, others[name].first.get(key), self._small(0)[0].get(name))
        return seen, changing, starts

    def _small(self, seed: int) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
        """Small parameters and the gradients of some steps; for a parameter without dims one of one element, so that what is remembered
        of it is told from what counts steps."""
        random = torch.Generator().manual_seed(seed)

        def draw(of: Tensor) -> Tensor:
            shape = [min(n, SMALL_SIZE) for n in of.shape] or [1]
            return torch.randn(shape, dtype=torch.float64, generator=random)

        stand_ins = {n: draw(p) for n, p in self.parameters.items()}
        return stand_ins, [{n: draw(p) for n, p in self._trained().items()} for _ in range(SMALL_STEPS)]

    def _small_memory(self) -> Memory:
        def small(path: tuple[Any, ...], leaf: Tensor) -> Tensor:
            part = leaf.detach().reshape(1) if path in self._of_scalars else leaf.detach()
            part = part[tuple(slice(SMALL_SIZE) for _ in range(part.dim()))]
            wide = torch.float64 if part.is_floating_point() and part.dim() else part.dtype
            return torch.ones(part.shape, dtype=wide) if leaf.is_meta else part.to("cpu", wide).clone()

        held = leaves_of(self._before)
        return with_leaves(self._before, {path: small(path, leaf) for path, leaf in held if isinstance(leaf, Tensor)})

    def _steps(
        self,
        stand_ins: Mapping[str, Tensor],
        gradients: Sequence[Mapping[str, Tensor]],
        before: Memory,
        traceable: bool,
        entries: dict[str, RecordedEntry] | None = None,
        seen: list[dict[str, Tensor]] | None = None,
    ) -> list[Memory]:
        """What is remembered after each of these steps on stand-ins, from `before` on."""
        pairs = [(parameter, stand_ins[name]) for name, parameter in self.parameters.items()]
        found: list[Memory] = []
        is_wide = all(each.dtype == torch.float64 for each in stand_ins.values())
        made = _default_type(self._small_type) if is_wide else nullcontext()
        with self._put_back(), torch.random.fork_rng(devices=[]), Substitutes(pairs), made:
            torch.manual_seed(0)
            for each in wrapped_by(self.optimizer):
                each.state = defaultdict(dict)
            self._write(before, RecordedEntry if entries is not None else dict)
            with ExitStack() as options:
                if traceable:
                    options.enter_context(self._traceable())
                else:
                    for group in self.optimizer.param_groups:
                        group.update({key: value for key, value in EAGER.items() if key in group})
                for each in gradients:
                    for name, gradient in each.items():
                        self.parameters[name].grad = gradient.clone()
                    try:
                        self.optimizer.step()
                    except Exception as error:
                        raise _Unrunnable(reason_of(error)) from error
                    found.append(self._read() if traceable else pytree.tree_map(_copied, self._read()))
                    if seen is not None:
                        seen.append({name: t.detach().clone() for name, t in stand_ins.items()})
            if entries is not None:
                entries |= {
                    self._names.get(id(key), str(key)): entry
                    for key, entry in self.optimizer.state.items()
                    if isinstance(entry, RecordedEntry)
                }
        return found

    def _check_start(self, expected: list[dict[str, Tensor]], starts: Mapping[tuple[Any, ...], Any]) -> None:
        """That three steps on small parameters from the state that a program starts with, with counters that are tensors,
        are those of the optimizer as it is."""
        stand_ins, gradients = self._small(0)
        example = dict(leaves_of(self._steps(self._small(0)[0], gradients[:1], self._small_memory(), False)[-1]))
        given: dict[tuple[Any, ...], Tensor] = {}
        own = {n: entry for n, entry in self.rest["state"].items() if self._example_of.get(n, n) == n}
        for each in self.tensors:
            start, like = starts.get(each.path, 0.0), example.get(each.path)
            if each.path[0] != "state" or not isinstance(like, Tensor) or not like.dim():
                given[each.path] = each.initial.clone()
            elif start is _PARAMETER:
                given[each.path] = stand_ins[each.path[1]].detach().clone()
            else:
                given[each.path] = _filled(like, float(start), "cpu").clone()
        found: list[dict[str, Tensor]] = []
        try:
            self._steps(stand_ins, gradients, with_leaves(self.rest | {"state": own}, given), True, seen=found)
        except _Unrunnable as error:
            raise DistirError(f"{self.what} has no program: {error}") from error
        for now, then in zip(found, expected, strict=True):
            if any(not torch.allclose(now[n], then[n], rtol=1e-6, atol=1e-9) for n in now):
                raise DistirError(
                    f"the state of {self.what} with these options does not start at zero, at one number or at the parameter: run "
                    "one optimizer.step() in PyTorch first, its state is imported"
                )


def _is_narrow(leaf: Any, over_time: Sequence[Any]) -> bool:
    """Whether a number is kept in less than float64, and is not one that counts, which takes no rounding."""
    if not isinstance(leaf, Tensor) or leaf.dim() or not leaf.is_floating_point() or leaf.dtype == torch.float64:
        return False
    numbers = [float(each) for each in over_time if each is not None]
    return len(set(numbers)) < len(numbers) or not all(number.is_integer() for number in numbers)


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


@contextmanager
def _default_type(dtype: torch.dtype) -> Generator[None]:
    """New tensors are of this type, if they name none."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _Unrunnable(Exception):
    """A step of an optimizer alone does not run; why."""


def wrapped_by(optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    """Optimizers that an optimizer has for attributes."""
    return [each for each in vars(optimizer).values() if isinstance(each, torch.optim.Optimizer)]


_PARAMETER = object()
"""Instead of a number: what the parameter itself is."""


def _start(value: Any, other: Any, parameter: Tensor | None) -> Any:
    """What an entry starts at, from what it was first in two runs: a number, the parameter, or 0 where neither is known."""
    if not isinstance(value, Tensor):
        return value if type(value) in (int, float) else 0.0
    if parameter is not None and value.shape == parameter.shape and torch.equal(value.double(), parameter):
        return _PARAMETER
    if not isinstance(other, Tensor) or not value.numel() or not torch.equal(value, other):
        return 0.0
    number = value.flatten()[0]
    return number.item() if bool((value == number).all()) else 0.0


def _filled(example: Tensor, value: float, device: str) -> Tensor:
    """A tensor like the example, of one number; zeros take no memory until they are touched, other numbers one element."""
    if value == 0:
        return torch.zeros(example.shape, dtype=example.dtype, device=device)
    return torch.full((), value, dtype=example.dtype, device=device).expand(example.shape)
