"""Traced tensors in place of a step's own. In go the step's tensors (parameters, buffers) and their substitutes;
while the step runs, modules, optimizers, hooks, lists and dictionaries in the user's code work on the substitutes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.autograd.graph import _get_grad_fn_or_grad_acc  # pyright: ignore[reportPrivateUsage]
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, set_proxy_slot
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]

from distir.frontends.pytorch.tensor_numbers import function_modes


class Substitutes(TorchFunctionMode):
    """Within it, an operator that is given an original works on its substitute, and so does reading or setting an attribute
    of one (`p.grad`). `pairs` are (original, substitute)."""

    def __init__(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self._pairs = {id(original): (original, substitute) for original, substitute in pairs}

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        args, kwargs = self._of(args), self._of(kwargs or {})
        if func is Tensor.backward:
            return self._backward(*args, **kwargs)
        if func == _GET_DATA:
            return args[0].detach()
        if func == _SET_DATA and get_proxy_mode() is not None:
            return _set_data(*args)
        return func(*args, **kwargs)

    def _of(self, value: Any) -> Any:
        """The value, or a sequence or dictionary of values, with substitutes in it."""
        if isinstance(value, Tensor):
            found = self._pairs.get(id(value))
            return value if found is None else found[1]
        if type(value) in (list, tuple):
            return type(value)(self._of(each) for each in value)
        if type(value) is dict:
            return {key: self._of(each) for key, each in cast(dict[Any, Any], value).items()}
        return value

    def _backward(self, loss: Tensor, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        """As `Tensor.backward`, with substitutes inside of hooks too; a gradient of 1 does not depend on the loss."""
        if gradient is None and loss.numel() == 1:
            gradient = torch.full(loss.shape, 1.0, dtype=loss.dtype)
        with self:
            torch.autograd.backward(loss, gradient, *args, **kwargs)

    @contextmanager
    def hooks(self) -> Generator[None]:
        """Each substitute has the hooks of its original, which see the original where they are given a parameter. A hook of
        several originals asks which of them a backward pass reaches, and is told which substitutes."""
        leaves = [id(original) for original, _ in self._pairs.values() if original.is_leaf and original.requires_grad]
        with _disable_current_modes():
            nodes = {each: _get_grad_fn_or_grad_acc(self._pairs[each][0]) for each in leaves}
        instead: dict[Any, Any] = {}
        for key, (original, substitute) in self._pairs.items():
            for hook in dict(original._backward_hooks or {}).values():  # pyright: ignore[reportPrivateUsage]
                substitute.register_hook(self._within(hook))
            for hook in dict(getattr(original, "_post_accumulate_grad_hooks", None) or {}).values():
                substitute.register_post_accumulate_grad_hook(self._within(hook, original))
            if (node := nodes.get(key)) is not None:
                instead[node] = _get_grad_fn_or_grad_acc(substitute)
                for kind in ("register_prehook", "register_hook"):
                    for hook in _hooks_of(node, kind):
                        getattr(instead[node], kind)(self._within(hook))
        engine = torch._C  # pyright: ignore[reportPrivateUsage]
        executes = engine._will_engine_execute_node  # pyright: ignore[reportPrivateUsage]
        with patch.object(engine, "_will_engine_execute_node", lambda node: executes(instead.get(node, node))):
            yield

    def _within(self, hook: Callable[..., Any], *instead: Tensor) -> Callable[..., Any]:
        def call(*args: Tensor) -> Any:
            if any(mode is self for mode in function_modes()):
                return hook(*(instead or args))
            with self:
                return hook(*(instead or args))

        return call


def _hooks_of(node: Any, register: str) -> list[Callable[..., Any]]:
    """The hooks of a node of the backward pass; it gives them to whoever registers another."""
    handle = getattr(node, register)(lambda *_: None)
    hooks = list((handle.hooks_dict_ref() or {}).values())[:-1]
    handle.remove()
    return hooks


_GET_DATA, _SET_DATA = cast(Any, Tensor.data).__get__, cast(Any, Tensor.data).__set__


def _set_data(tensor: Tensor, data: Tensor) -> None:
    """`tensor.data = data` while proxies are traced: the tensor is the same value from now on, others that share its memory stay."""
    if tensor.shape != data.shape or tensor.dtype != data.dtype:
        raise TypeError(
            f"'.data' of shape {list(tensor.shape)} is set to shape {list(data.shape)}, expected the same shape and type"
        )
    mode = get_proxy_mode()
    assert mode is not None
    set_proxy_slot(tensor, mode.tracer, get_proxy_slot(data, mode.tracer))


@contextmanager
def in_modules(modules: Iterable[nn.Module], pairs: Mapping[int, Tensor]) -> Generator[None]:
    """Parameters and buffers of modules are, by the `id` of the original, these meanwhile."""
    slots: list[tuple[dict[str, Any], str, Tensor]] = []
    try:
        for module in {id(inner): inner for outer in modules for inner in outer.modules()}.values():
            for tensors in (module._parameters, module._buffers):  # pyright: ignore[reportPrivateUsage]
                for name, tensor in tensors.items():
                    if id(tensor) in pairs:
                        slots.append((tensors, name, cast(Tensor, tensor)))
                        tensors[name] = cast(Any, pairs[id(tensor)])
        yield
    finally:
        for tensors, name, tensor in slots:
            tensors[name] = tensor
