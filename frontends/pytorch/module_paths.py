"""Which module of a model computes what. In goes a step that is traced; out comes, in each node of the graph, the
path of the innermost module that runs (`blocks.3.mlp.up`), or whose backward part runs. For a program without
modules, the caller says the names (`NamedCalls`)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, fx, nn
from torch.fx import traceback
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

KEY = "distir_module"


@contextmanager
def module_paths() -> Generator[None]:
    """Notes paths in the nodes that are traced inside."""
    paths = _Paths()
    with traceback.preserve_node_meta():
        before = register_module_forward_pre_hook(paths.enter)
        after = register_module_forward_hook(paths.leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()


def path_of(node: fx.Node) -> str:
    """The path of the module that computes a node; empty outside of modules."""
    return str((node.meta.get("custom") or {}).get(KEY, ""))


class _Paths:
    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        """Paths of the modules of the outermost ones that have run, by identity."""
        self._running: list[tuple[str, str, set[Any]]] = []
        """Paths, what was noted before, and what made the inputs."""
        self._marked: set[Any] = set()
        """Steps of the backward part that have a path: those of inner modules come first."""

    def enter(self, module: nn.Module, inputs: Any) -> None:
        if not self._running and id(module) not in self._names:  # otherwise it runs again, for the backward part
            self._names |= {id(inner): name for name, inner in module.named_modules()}
        above = self._running[-1][0] if self._running else ""
        self.begin(self._names.get(id(module), above), inputs)

    def leave(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self.end(outputs)

    def begin(self, path: str, inputs: Any) -> None:
        """What runs from now on is of this module."""
        self._running.append((path, _noted(), set(_steps(inputs))))
        _note(path)

    def end(self, outputs: Any) -> None:
        """The module that began last has given these values: the steps that made them are of its backward part."""
        path, noted_before, made_before = self._running.pop()
        _note(noted_before)
        reached, seen = _steps(outputs), made_before
        while reached and path:
            step = reached.pop()
            if step in seen:
                continue
            seen.add(step)
            if step not in self._marked:
                self._marked.add(step)
                step.register_prehook(lambda gradients: _note(path))
                step.register_hook(lambda made, gradients: _note(""))
            reached += [before for before, _ in step.next_functions if before is not None]


class NamedCalls(TorchFunctionMode):
    """Notes, while it is active, what `name` says of each function of torch that is called."""

    def __init__(self, name: Callable[[], str]) -> None:
        super().__init__()
        self._name, self._paths = name, _Paths()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._paths.begin(self._name(), args)
        outputs = None
        try:
            outputs = func(*args, **(kwargs or {}))
        finally:
            self._paths.end(outputs)
        return outputs


def _steps(values: Any) -> list[Any]:
    """The steps of the backward part that these tensors begin."""
    return [v.grad_fn for v in pytree.tree_leaves(values) if isinstance(v, Tensor) and v.grad_fn is not None]


def _noted() -> str:
    return str((traceback.current_meta.get("custom") or {}).get(KEY, ""))


def _note(path: str) -> None:
    """What is traced from now on is of this module."""
    meta: dict[str, Any] = traceback.current_meta
    meta["custom"] = {**(meta.get("custom") or {}), KEY: path}
