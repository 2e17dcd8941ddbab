"""The memory of an optimizer, nested dictionaries and lists. In go these containers; out come their leaves by path,
and the same containers with other leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import Tensor


class RecordedEntry(dict[str, Any]):
    """The state of a parameter, which knows what each entry was first."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.first: dict[str, Any] = {}

    def __setitem__(self, key: str, value: Any) -> None:
        self.first.setdefault(key, value.detach().clone() if isinstance(value, Tensor) else value)
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value


def plain(entry: Any) -> Any:
    """The same containers anew, with dictionaries as plain ones."""
    if isinstance(entry, dict):
        return {key: plain(value) for key, value in cast("dict[Any, Any]", entry).items()}
    if type(entry) in (list, tuple):
        return type(entry)(plain(value) for value in entry)
    return entry


def leaves_of(memory: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    if isinstance(memory, dict):
        members = cast("dict[Any, Any]", memory).items()
    elif type(memory) in (list, tuple):
        members = enumerate(memory)
    else:
        return [(path, memory)]
    return [leaf for key, member in members for leaf in leaves_of(member, (*path, key))]


def with_leaves(memory: Any, leaves: Mapping[tuple[Any, ...], Any], path: tuple[Any, ...] = ()) -> Any:
    """The same containers with these leaves in their places."""
    if isinstance(memory, dict):
        return {k: with_leaves(v, leaves, (*path, k)) for k, v in cast("dict[Any, Any]", memory).items()}
    if type(memory) in (list, tuple):
        return type(memory)(with_leaves(v, leaves, (*path, i)) for i, v in enumerate(memory))
    return leaves.get(path, memory)


def put(container: Any, path: Sequence[Any], leaf: Any) -> None:
    """Puts a leaf in its place, in dictionaries that are made where there are none."""
    for key in path[:-1]:
        container = container.setdefault(key, {})
    container[path[-1]] = leaf


def is_same(a: Any, b: Any) -> bool:
    return a is b if isinstance(a, Tensor) or isinstance(b, Tensor) else bool(a == b)


def path_name(path: tuple[Any, ...]) -> str:
    """`state.<parameter>.<key>`, as torch.distributed.checkpoint has it, `param_groups.<number>.<option>`, `optimizer.<attribute>`."""
    return ".".join(map(str, path if path[0] != "attributes" else ("optimizer", *path[1:])))
