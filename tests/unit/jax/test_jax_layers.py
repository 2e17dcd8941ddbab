"""Parameters of all layers in one array, as scans take them: one argument per layer."""

from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from xdsl.dialects.builtin import TensorType

from distir.dialects.dist.attributes import placement
from distir.dialects.errors import DistirError
from distir.dialects.registry import program_context
from distir.frontends.by_layer import join_layers, layers_of, split_layers
from distir.frontends.checkpoints import bind, save
from distir.frontends.eager import check_imported, verify_against_eager
from distir.frontends.jax import import_step
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.equivalence import verify
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.structure import shape_of
from distir.tools.commands.model import load_model

pytestmark = pytest.mark.filterwarnings("ignore")
LAYERS, WIDTH, ROWS = 4, 6, 8
RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return (RANDOM.standard_normal(shape) / WIDTH).astype(np.float32)


def tree_sum(tree: Any) -> Any:
    return sum(jax.tree.leaves(tree))


def momentum(p: Any, g: Any, s: Any) -> Any:
    s = jax.tree.map(lambda g, m: 0.9 * m + g, g, s)
    return jax.tree.map(lambda p, m: p - 0.1 * m, p, s), s


def clipped_adam(p: Any, g: Any, s: Any) -> Any:
    norm = jnp.sqrt(tree_sum(jax.tree.map(lambda g: (g * g).sum(), g)))
    g = jax.tree.map(lambda g: jnp.where(norm < 1, g, g / norm), g)
    m, v = (jax.tree.map(lambda g, s: 0.9 * s + 0.1 * g**power, g, each) for power, each in ((1, s[0]), (2, s[1])))
    return jax.tree.map(lambda p, m, v: p - 0.1 * m / (jnp.sqrt(v) + 1e-3) - 0.01 * p, p, m, v), (m, v)


def lamb(p: Any, g: Any, s: Any) -> Any:
    """The step is as long as the parameter: of all layers together."""
    s = jax.tree.map(lambda g, m: 0.9 * m + 0.1 * g, g, s)
    ratio = jax.tree.map(lambda p, m: jnp.linalg.norm(p) / (1 + jnp.linalg.norm(m)), p, s)
    return jax.tree.map(lambda p, m, r: p - 0.01 * r * m, p, s, ratio), s


def factored(p: Any, g: Any, s: Any) -> Any:
    """As Adafactor: means of squares over the rows and columns of each layer, and clipping by the mean over all layers."""
    s = jax.tree.map(lambda g, v: 0.9 * v + 0.1 * (g * g), g, s)

    def step(p: Any, g: Any, v: Any) -> Any:
        if p.ndim > 2:
            v = v.mean(-1, keepdims=True) * v.mean(-2, keepdims=True)
        u = g / (jnp.sqrt(v) + 1e-3)
        return p - 0.01 * u / jnp.maximum(1.0, jnp.sqrt((u * u).mean()))

    return jax.tree.map(step, p, g, s), s


def layer(x: Any, p: Any) -> Any:
    return x + jnp.tanh(x @ p["w"]) * p["s"], (x * x).mean()


def plain(p: Any, x: Any) -> Any:
    return jax.lax.scan(layer, x, p["layers"])[0]


def rematerialised(p: Any, x: Any) -> Any:
    """In another type, the last layer first."""
    cast = jax.tree.map(lambda w: w.astype(jnp.bfloat16).astype(np.float32), p["layers"])
    return jax.lax.scan(jax.checkpoint(layer), x, cast, reverse=True)[0]


def twice(p: Any, x: Any) -> Any:
    """Two scans, with a number and a key of each layer."""

    def dropped(x: Any, each: Any) -> Any:
        p, number, key = each
        x, mean = layer(x, p)
        return number * x * jax.random.bernoulli(key, 0.9, x.shape), mean

    keys = jax.random.split(jax.random.key(0), LAYERS)
    x, means = jax.lax.scan(dropped, x, (p["layers"], jnp.linspace(0.5, 1, LAYERS), keys))
    return jax.lax.scan(layer, x, p["others"])[0] + means.sum()


def along_dim_1(p: Any, x: Any) -> Any:
    return jax.lax.scan(layer, x, jax.tree.map(lambda w: jnp.moveaxis(w, 1, 0), p["layers"]))[0]


def parameters(*stacks: str, dim: int = 0) -> dict[str, Any]:
    def stack() -> Any:
        arrays = {"w": drawn(LAYERS, WIDTH, WIDTH), "s": drawn(LAYERS, WIDTH)}
        return {name: np.moveaxis(array, 0, dim).copy() for name, array in arrays.items()}

    return {"first": drawn(WIDTH, WIDTH), **{name: stack() for name in stacks}}


def training(forward: Callable[..., Any], p: Any, update: Callable[..., Any] = momentum, **options: Any) -> Any:
    def loss(p: Any, x: Any, y: Any) -> Any:
        return ((forward(p, x @ p["first"]) - y) ** 2).mean()

    def step(p: Any, s: Any, x: Any, y: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(p, x, y)
        return *update(p, gradient, s), value

    zeros = jax.tree.map(np.zeros_like, p)
    state = (zeros, zeros) if update is clipped_adam else zeros
    roles = ("parameter", "state", "input", "label")
    x, y = drawn(ROWS, WIDTH), drawn(ROWS, WIDTH)
    module = import_step(step, (p, state, x, y), roles, ("parameter", "state", "output"), **options)
    return load_model(module)


def shapes(module: Any) -> dict[str, tuple[int, ...]]:
    return {port.name: cast("TensorType[Any]", port.type).get_shape() for port in arguments_of(entry_function(module))}


def split(module: Any) -> Mapping[str, tuple[int, int]]:
    return layers_of(shapes(module))


@pytest.mark.parametrize("update", [momentum, clipped_adam, lamb, factored])
@pytest.mark.parametrize("forward", [plain, pytest.param(rematerialised, marks=pytest.mark.long)])
def test_a_training_step_has_an_argument_per_layer(update: Callable[..., Any], forward: Callable[..., Any]) -> None:
    module = training(forward, parameters("layers"), update)
    module.verify()
    assert not [name for name, shape in shapes(module).items() if shape[:1] == (LAYERS,)]
    assert shapes(module)["p.layers.w[3]"] == (1, WIDTH, WIDTH)
    assert set(split(module).values()) == {(0, LAYERS)}
    updated = {port.name for port in results_of(entry_function(module))}
    assert {name for name in shapes(module) if name.startswith(("p.", "s."))} <= updated
    assert verify_against_eager(module, steps=2).holds


def test_two_scans_with_keys_and_numbers_of_layers() -> None:
    module = training(twice, parameters("layers", "others"), clipped_adam)
    assert len(split(module)) == 12
    assert check_imported(module)


def test_layers_along_another_dim() -> None:
    module = training(along_dim_1, parameters("layers", dim=1), clipped_adam)
    assert shapes(module)["p.layers.w[:,2]"] == (WIDTH, 1, WIDTH)
    assert len(split(module)) == 6
    assert check_imported(module)


def test_an_array_stays_whole_where_it_is_asked_for() -> None:
    module = training(plain, parameters("layers"), by_layer=False)
    assert not split(module)
    assert shapes(module)["p.layers.w"] == (LAYERS, WIDTH, WIDTH)


def test_a_program_that_was_changed_since_stays_whole() -> None:
    module = import_step(
        lambda p, x: plain(p, x).sum(), (parameters("layers", "others"), drawn(ROWS, WIDTH)), ("parameter", "input")
    )
    assert split(load_model(module))
    taken = next(op for op in entry_function(module).body.block.ops if shape_of(op.operands[0])[:1] == (LAYERS,))
    other = next(
        a for a in entry_function(module).args if a.type == taken.operands[0].type and a is not taken.operands[0]
    )
    taken.operands[0] = other
    assert not split(load_model(module))


def mixed(p: Any, x: Any) -> Any:
    """Something needs all layers of one of the arrays."""
    return plain(p, x) + jnp.sort(p["layers"]["s"], 0)[0]


def one_row(p: Any, x: Any) -> Any:
    return x @ p["layers"]["w"][1]


def experts(p: Any, x: Any) -> Any:
    return jnp.einsum("bi,eij->bj", x, p["layers"]["w"]) + p["layers"]["s"].sum(0)


def over_time(p: Any, x: Any) -> Any:
    """The steps share a weight that is larger than what each has."""

    def cell(x: Any, s: Any) -> Any:
        return jnp.tanh(x @ p["layers"]["w"].sum(0) @ p["first"] + s), None

    return jax.lax.scan(cell, x, p["layers"]["s"])[0]


@pytest.mark.parametrize("forward", [one_row, experts, over_time])
def test_nothing_is_split_where_no_layers_are_told_apart(forward: Callable[..., Any]) -> None:
    module = training(forward, parameters("layers"))
    module.verify()
    assert not split(module)
    assert check_imported(module)


def in_turns(p: Any, x: Any) -> Any:
    """A scan over parts of the batch, with a scan over layers in each step."""
    return jax.lax.scan(lambda _, rows: (None, plain(p, rows)), None, x.reshape(2, ROWS // 2, WIDTH))[1].reshape(
        x.shape
    )


def test_what_a_scan_within_a_scan_takes_stays_whole() -> None:
    module = training(in_turns, parameters("layers"))
    module.verify()
    assert shapes(module)["p.layers.w"] == (LAYERS, WIDTH, WIDTH)
    assert check_imported(module)


def test_what_is_needed_whole_stays_whole() -> None:
    module = training(mixed, parameters("layers"))
    assert {*split(module)} == {"p.layers.w", "s.layers.w"}
    assert check_imported(module)


def test_a_checkpoint_may_have_whole_arrays(tmp_path: Path) -> None:
    module = training(plain, p := parameters("layers"))
    names = {name: value for name, value in weights_of(module).items() if name.startswith("p.")}
    whole = join_layers(names)
    assert np.array_equal(whole["p.layers.w"], p["layers"]["w"])
    save(tmp_path / "whole.safetensors", {name: 2 * value for name, value in whole.items()})
    bind(module, tmp_path / "whole.safetensors")
    assert np.array_equal(weights_of(module)["p.layers.w[1]"], 2 * p["layers"]["w"][1:2])


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_and_whole_arrays(dim: int) -> None:
    arrays = {"w": drawn(3, 3), "b": drawn(2)}
    parts = split_layers(arrays, {"w": (dim, 3)})
    assert layers_of(parts) == {"w": (dim, 3)}
    assert all(np.array_equal(a, arrays[name]) for name, a in join_layers(parts).items())
    del parts["w[0]" if dim == 0 else "w[:,0]"]
    with pytest.raises(DistirError, match="one of 3 parts of 'w'"):
        join_layers(parts)


@pytest.mark.parametrize("update", [clipped_adam, lamb])
def test_stages_have_their_layers_alone(update: Callable[..., Any]) -> None:
    module = training(plain, parameters("layers"), update)
    planned = module.clone()
    DtpParallelizePass(pp=2, microbatches=2).apply(program_context(), planned)
    held = Counter[int]()
    for argument in entry_function(planned).body.block.args:
        on = placement(argument.type)
        assert on is not None
        held[on.device] += prod(shape_of(argument))
    assert max(held.values()) < 0.6 * held.total()
    assert verify(module, planned).holds
