"""Takes a step's own tensors (parameters, buffers) and the traced tensors that stand for them; while the step runs, everybody who
has one of the former works on the latter: modules, optimizers, hooks, lists and dictionaries in the user's code."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, set_proxy_slot
from torch.overrides import TorchFunctionMode

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

    def keep_hooks(self) -> None:
        """Gives each substitute the hooks of its original, which see the original where they are given a parameter."""
        for original, substitute in self._pairs.values():
            for hook in dict(original._backward_hooks or {}).values():  # pyright: ignore
                substitute.register_hook(self._within(hook))
            for hook in dict(getattr(original, "_post_accumulate_grad_hooks", None) or {}).values():
                substitute.register_post_accumulate_grad_hook(self._within(hook, original))

    def _within(self, hook: Callable[..., Any], *instead: Tensor) -> Callable[..., Any]:
        def call(*args: Tensor) -> Any:
            if any(mode is self for mode in function_modes()):
                return hook(*(instead or args))
            with self:
                return hook(*(instead or args))

        return call


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
