"""Example arguments and results of a user's function, nested as they are. In go these; out come the tensors in them
by name, and a way to put other tensors in their places."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, cast

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from distir.dialects.errors import DistirError

Results = dict[tuple[str, str], Tensor]
"""By name and role."""


@dataclass(frozen=True)
class Arguments:
    """Example arguments with the tensors among them taken out: `rebuild` puts tensors by name in their places."""

    tensors: Mapping[str, Tensor]
    rebuild: Callable[[Mapping[str, Tensor]], tuple[list[Any], dict[str, Any]]]

    @classmethod
    def of(
        cls, callee: Callable[..., Any], given: Sequence[Any] | Mapping[str, Any], extra: Sequence[str] = ()
    ) -> Arguments:
        """Tensors are named by the parameters of the callee (then `extra`), and by their place inside nested ones."""
        if isinstance(given, Mapping):
            whole: dict[str, Any] = dict(given)
        else:
            given = (given,) if isinstance(given, Tensor) else given
            own = len(given) - len(extra)
            names = _parameter_names(callee)[:own]
            names += [f"arg{i}" for i in range(len(names), own)]
            whole = dict(zip([*names, *extra], given, strict=True))
        leaves, structure = pytree.tree_flatten_with_path(whole)
        places = [(_path_name(path), leaf) for path, leaf in leaves]
        tensors = {name: leaf for name, leaf in places if isinstance(leaf, Tensor)}

        def rebuild(by_name: Mapping[str, Tensor]) -> tuple[list[Any], dict[str, Any]]:
            values = [by_name.get(name, leaf) if isinstance(leaf, Tensor) else leaf for name, leaf in places]
            filled = cast(dict[str, Any], pytree.tree_unflatten(values, structure))
            return ([], filled) if isinstance(given, Mapping) else (list(filled.values()), {})

        return cls(tensors, rebuild)


def _parameter_names(callee: Callable[..., Any]) -> list[str]:
    target: Callable[..., Any] = callee.forward if isinstance(callee, nn.Module) else callee
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _path_name(path: Sequence[Any]) -> str:
    """`x`, or `cache.0.key` for a tensor inside."""
    words = [getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))) for key in path]
    return ".".join(map(str, words))


def named_results(results: Any, where: str, alone: str = "output") -> Results:
    """The tensors of a result by their places in it; one that is nothing but a tensor is called `alone`.

    Raises DistirError for results with an object that may have tensors where no name leads to."""
    results = _opened(results)
    if isinstance(results, Tensor):
        return {(alone, "output"): results}
    leaves, _ = pytree.tree_flatten_with_path(results)
    found: Results = {}
    for path, leaf in leaves:
        name = _path_name(path)
        if isinstance(leaf, Tensor):
            found[f"output{name}" if name[:1].isdigit() else name, "output"] = leaf
        elif leaf is not None and not isinstance(leaf, str | int | float | complex):
            raise DistirError(
                f"{where}: its result {name + ' ' if name else ''}is a {type(leaf).__name__}, expected tensors, or tuples, lists, dictionaries "
                "and dataclasses of them: return what is wanted of it"
            )
    return found


def _opened(value: Any) -> Any:
    """Dataclasses that pytree does not know, and mappings of other classes, as dictionaries."""
    if is_dataclass(type(value)) and cast(Any, type(value)) not in pytree.SUPPORTED_NODES:
        return {each.name: _opened(getattr(value, each.name)) for each in fields(cast(Any, type(value)))}
    if isinstance(value, Mapping):
        return {key: _opened(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    if type(value) in (list, tuple):
        return type(value)(_opened(each) for each in value)
    return value


def described(value: Any) -> str:
    return f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
