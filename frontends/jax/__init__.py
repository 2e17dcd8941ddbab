"""JAX functions as level 1 programs.

    module = import_step(train_step, (params, momentum, x, y), ("parameter", "state", "input", "label"),
                         results=("parameter", "state", "output"))

`import_step` traces a function to a jaxpr and writes it as `func.func @main` over the `jax` dialect. Arguments and results may be
any pytrees of arrays; a leaf is named by its path (`params.layers.0.w`), and `dist.role` says what it is. A result whose role
is `parameter`, `state` or `buffer` is the update of the arguments of that role, leaf by leaf, and has their names. Arrays
among the parameters and state are attached as the program's weights; `jax.ShapeDtypeStruct` stands for one without values.

Nested jaxprs of calls (`jit`, `custom_jvp`, `remat`) are inlined; a `scan` is its body as a function, called as often as it
runs. `while` and `cond` stay single operations with regions. JAX is an optional extra: `pip install distir[jax]`.

`parameters` encodes the parameters of primitives, `trace` turns a jaxpr into operations, `jaxprs` turns operations back;
`library` is JAX itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute

from distir.dialects.errors import DistirError
from distir.dialects.jax.library import library
from distir.frontends.eager import Steps, attach_eager
from distir.frontends.jax.fixed import traced
from distir.frontends.jax.keys import keys_of, numbers_of
from distir.frontends.jax.rows import attach_rows
from distir.interpreters.weights import attach

__all__ = ["import_step"]

ARGUMENT_ROLES = ("input", "label", "seed", "parameter", "state", "buffer")
UPDATED_ROLES = ("parameter", "state", "buffer")


def import_step(
    function: Callable[..., Any],
    example_args: Sequence[Any],
    arguments: Sequence[str] | None = None,
    results: Sequence[str] | None = None,
    by_layer: bool = True,
) -> ModuleOp:
    """The function as a module with @main, its arguments and results in the order of the flattened pytrees.

    `arguments` gives the role of each positional argument (`input` by default), `results` that of each element of the
    returned tuple, or of the one value that it returns (`output` by default). With `by_layer`, what takes the module as a
    MODEL makes a parameter (state, buffer) in which a `scan` has all layers an argument per layer, `w[0]` of shape [1, ...]; it
    stays one where something needs it whole. Raises DistirError, one line, for what a program cannot hold, naming the primitive.
    """
    from distir.frontends.jax.trace import Tracer

    jax = library()
    names = _argument_names(function, len(example_args))
    label = _name_of(function)
    try:
        function, example_args, jaxpr, shape = traced(function, example_args)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DistirError(f"JAX cannot trace {label}: {reason}") from error
    roles = _roles(arguments, len(example_args), ARGUMENT_ROLES, "arguments", "input")
    leaves = [
        (path, role, leaf)
        for name, role, example in zip(names, roles, example_args, strict=True)
        for path, leaf in _leaves(name, example)
    ]
    _require_distinct([path for path, _, _ in leaves])
    tracer = Tracer()
    module = tracer.module(jaxpr)
    from distir.interpreters.entry import entry_function

    main = entry_function(module, "main")
    from xdsl.dialects.builtin import ArrayAttr

    main.arg_attrs = ArrayAttr([_attributes(path, role) for path, role, _ in leaves])
    returned = list(_results(shape, results, leaves))
    main.res_attrs = ArrayAttr([_attributes(path, role) for path, role in returned])
    tracer.rows.erase_unused()
    if by_layer:
        attach_rows(module, tracer.rows)
    attach(
        module,
        {
            path: np.asarray(numbers_of(leaf))
            for path, role, leaf in leaves
            if role in UPDATED_ROLES and _has_value(leaf)
        },
    )
    structure = jax.tree_util.tree_structure(tuple(example_args))
    steps = _steps(function, structure, [(path, leaf) for path, _, leaf in leaves], [path for path, _ in returned])
    inputs = {
        path: np.asarray(numbers_of(leaf))
        for path, role, leaf in leaves
        if role in ("input", "label") and _has_value(leaf)
    }
    attach_eager(module, steps, {path: array for path, array in inputs.items() if array.dtype.kind in "iub"})
    return module


def _steps(
    function: Callable[..., Any], structure: Any, examples: Sequence[tuple[str, Any]], results: Sequence[str]
) -> Steps:
    """The function itself, as steps."""

    def run(values: Mapping[str, Any], batches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        held, found = dict(values), list[dict[str, Any]]()
        for batch in batches:
            held |= batch
            leaves = [keys_of(library().numpy.asarray(held[name]), example) for name, example in examples]
            returned = library().tree_util.tree_leaves(function(*library().tree_util.tree_unflatten(structure, leaves)))
            found.append({name: np.asarray(numbers_of(leaf)) for name, leaf in zip(results, returned, strict=True)})
            held |= found[-1]
        return found

    return run


def _roles(given: Sequence[str] | None, count: int, known: Sequence[str], what: str, default: str) -> Sequence[str]:
    if given is None:
        return [default] * count
    if len(given) != count:
        raise DistirError(f"{what}: expected {count} roles, got {len(given)}")
    for role in given:
        if role not in known:
            raise DistirError(f"{what}: no role '{role}'; the roles are {', '.join(known)}")
    return given


def _argument_names(function: Callable[..., Any], count: int) -> list[str]:
    """The names of the positional parameters; those of a variadic one are numbered."""
    names: list[str] = []
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return [*names, *(f"argument{i}" for i in range(len(names), count))][:count]


def _leaves(prefix: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a pytree with their paths, dotted."""
    for path, leaf in library().tree_util.tree_flatten_with_path(tree)[0]:
        yield ".".join([prefix, *(_key(key) for key in path)]), leaf


def _key(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _require_distinct(paths: Sequence[str]) -> None:
    for path in paths:
        if paths.count(path) > 1:
            raise DistirError(f"two leaves of the arguments are named '{path}': rename a key")


def _results(
    shape: Any, given: Sequence[str] | None, leaves: Sequence[tuple[str, str, Any]]
) -> Iterator[tuple[str, str]]:
    """Name and role of each result."""
    parts: tuple[Any, ...] = tuple(shape) if isinstance(shape, tuple) and not hasattr(shape, "_fields") else (shape,)
    roles = _roles(given, len(parts), (*UPDATED_ROLES, "output"), "results", "output")
    taken = {path for path, _, _ in leaves}
    for i, (role, part) in enumerate(zip(roles, parts, strict=True)):
        found = list(_leaves("output" if len(parts) == 1 else f"output{i}", part))
        if role == "output":
            for path, _ in found:
                if path in taken:
                    raise DistirError(f"a result is named '{path}', as an argument is: rename the argument")
                yield path, role
            continue
        updated = [(path, leaf) for path, of_role, leaf in leaves if of_role == role]
        if [tuple(leaf.shape) for _, leaf in found] != [tuple(np.shape(leaf)) for _, leaf in updated]:
            raise DistirError(
                f"result {i} has role '{role}', so its leaves must have the shapes of the arguments of that role: "
                f"expected {len(updated)} leaves, got {len(found)}"
                + ("" if len(updated) != len(found) else " of other shapes")
            )
        for path, _ in updated:
            yield path, role


def _has_value(leaf: Any) -> bool:
    return not isinstance(leaf, library().ShapeDtypeStruct)


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", str(function))


def _attributes(name: str, role: str) -> DictionaryAttr:
    members: dict[str, Attribute] = {"dist.name": StringAttr(name), "dist.role": StringAttr(role)}
    return DictionaryAttr(members)
