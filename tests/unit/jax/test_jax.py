"""JAX functions as programs."""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.errors import DistirError
from distir.dialects.jax import Jax
from distir.dialects.onnx import Onnx
from distir.interpreters.entry import entry_function
from distir.interpreters.inputs import index_limit, special_indices
from distir.interpreters.jax.primitives import run_jax, run_jax_in_range
from distir.interpreters.module_check import check_module
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of

pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).parents[3]


def reparsed(module: ModuleOp) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Dist, Onnx, Jax):
        context.load_dialect(dialect)
    again = Parser(context, str(module)).parse_module()
    again.verify()
    check_module(again)
    assert str(again) == str(module)
    return again


def imported(function: Callable[..., Any], *args: Any, **roles: Any) -> ModuleOp:
    from distir.frontends.jax import import_step

    return import_step(function, args, **roles)


def assert_computes(function: Callable[..., Any], *args: Any) -> ModuleOp:
    """The program, through text, gives what JAX gives; returns it."""
    import jax

    module = imported(function, *args)
    names = [f"{name}" for name in _argument_names(module)]
    outputs = run(reparsed(module), dict(zip(names, map(np.asarray, jax.tree.leaves(args)), strict=True)))
    expected = jax.tree.leaves(function(*args))
    assert len(expected) == len(outputs)
    for want, got in zip(expected, outputs.values(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    return module


def _argument_names(module: ModuleOp) -> list[str]:
    from distir.interpreters.entry import arguments_of, entry_function

    return [port.name for port in arguments_of(entry_function(module, "main"))]


def _ops(module: ModuleOp) -> list[str]:
    return [op.name for op in module.walk()]


@pytest.mark.long
def test_rules_of_a_training_step_hold() -> None:
    """Every class of primitives of the example transformer's step, in two and three uneven shards."""
    from tests.unit.step_rules import measure

    outcome = measure(["jax"])
    assert not outcome.false
    assert outcome.classes > 60
    assert outcome.factors > 300


X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def test_calls_are_inlined() -> None:
    import jax

    def f(x: Any) -> Any:
        return jax.checkpoint(lambda y: jax.nn.relu(jax.jit(lambda z: z * 2.0)(y)))(x).sum()

    module = assert_computes(jax.value_and_grad(f), X)
    assert not {"jax.jit", "jax.custom_jvp_call", "jax.remat2"} & set(_ops(module))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_calls_of_its_body(reverse: bool) -> None:
    import jax
    import jax.numpy as jnp

    def f(w: Any, xs: Any) -> Any:
        def body(carry: Any, x: Any) -> tuple[Any, Any]:
            carry = jnp.tanh(carry @ w + x)
            return carry, carry.sum()

        last, sums = jax.lax.scan(body, jnp.zeros(6, np.float32), xs, reverse=reverse)
        return last.sum() + (sums * jnp.arange(4.0)).sum()

    module = assert_computes(jax.grad(f, argnums=(0, 1)), np.eye(6, dtype=np.float32), X)
    assert _ops(module).count("func.call") == 8  # four steps forward, four backward
    assert _ops(module).count("func.func") == 3


def test_while_and_cond_are_operations_with_regions() -> None:
    import jax

    def f(x: Any) -> Any:
        x = jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2.0), (0, x))[1]
        return jax.lax.cond(x.sum() > 0, lambda y: y + 1.0, lambda y: y - 1.0, x)

    module = assert_computes(f, X)
    assert {"jax.while", "jax.cond"} <= set(_ops(module))


def test_loops_without_end_are_left_where_operands_are_drawn() -> None:
    """Discovery tries a number of steps of 2^31, and what never converges: XLA cannot be interrupted."""
    import jax

    def times(n: Any, x: Any) -> Any:
        return jax.lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2.0), (0, x))[1]

    def function(n: Any, x: Any) -> Any:
        return times(n, x), jax.lax.cond(n > 0, times, lambda n, x: x, n, x)

    module = imported(function, np.int32(3), X)
    main = entry_function(module).body.block
    alone, inside = (op for op in main.ops if op.name in ("jax.while", "jax.cond"))
    assert [v.type.get_shape() for v in alone.operands] == [(), (), X.shape]  # how many, from which, of what
    assert [v.type.get_shape() for v in inside.operands] == [(), (), X.shape]  # which, how many, of what

    def both(steps: int) -> list[Any]:
        number = np.int32(steps)
        return [(alone, [number, np.int32(0), X]), (inside, [np.int32(1), number, X])]

    for op, operands in both(3):
        for a, b in zip(run_jax_in_range(op, operands), run_jax(op, operands), strict=True):
            np.testing.assert_array_equal(a, b)
    without_end, within = both(2**31 - 1)
    with pytest.raises(DistirError, match="more than 128 steps"):
        run_jax_in_range(*without_end)
    (found,) = run_jax_in_range(*within)
    assert np.isnan(found).all()


def test_parameters_of_all_kinds() -> None:
    """Convolution, gather, scatter, sort, cumulative sums, dtypes, top_k: every encoding of a parameter."""
    import jax
    import jax.numpy as jnp

    def f(x: Any) -> Any:
        x = jnp.asarray(x)
        image = x.reshape(1, 1, 4, 6)
        kernel = jnp.ones((2, 1, 2, 2), np.float32)
        convolved = jax.lax.conv_general_dilated(image, kernel, (1, 2), "SAME")
        pooled = jax.lax.reduce_window(image, -np.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        picked = x.at[jnp.array([0, 9])].get(mode="fill", fill_value=np.nan)
        return (
            convolved,
            pooled,
            jnp.nan_to_num(picked),
            x.at[jnp.array([1, 2])].add(1.0),
            jnp.sort(x, axis=1),
            jnp.cumsum(x, axis=0),
            jax.lax.top_k(x, 2),
            x.astype(jnp.bfloat16).astype(np.float32),
            jnp.where(x > 0, x, -np.inf).max(0),
        )

    assert_computes(f, X)


def test_parameters_of_gradients() -> None:
    """Shardings over no mesh (a cast), primitives (a maximum over windows), spaces of memory (a branch)."""
    import jax
    import jax.numpy as jnp

    def f(x: Any) -> Any:
        x = jnp.asarray(x)
        low = x.astype(jnp.bfloat16).astype(np.float32)
        pooled = jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 2), (1, 2), "VALID")
        branch = jax.lax.cond(x[0, 0] > 0, lambda y: (y**2).sum(), lambda y: 0.0, x)
        return (low**2).sum() + (pooled**2).sum() + branch

    assert_computes(jax.grad(f), X)


def test_products_of_groups() -> None:
    """And their gradients, by the rows and by the weights of the groups."""
    import jax

    def f(x: Any, weights: Any, sizes: Any) -> Any:
        return (jax.lax.ragged_dot(x, weights, sizes) ** 2).sum()

    weights, sizes = np.arange(36, dtype=np.float32).reshape(3, 6, 2), np.array([1, 0, 3], np.int32)
    assert_computes(jax.value_and_grad(f, (0, 1)), X, weights, sizes)


def test_numbers_by_which_the_function_decides_are_fixed() -> None:
    """Those of Python alone: other numbers are arguments."""

    def f(options: dict[str, Any], x: Any) -> Any:
        return options, x * 2 if options["inference"] else x

    module = imported(
        f, {"inference": True, "scale": 3.0}, X, arguments=("state", "input"), results=("state", "output")
    )
    assert _argument_names(module) == ["options.scale", "x"]
    np.testing.assert_array_equal(list(run(module, {"options.scale": np.float32(3), "x": X}).values())[1], X * 2)


def test_computed_in_float64() -> None:
    """Constants, dtypes among parameters and regions are all widened."""
    import jax
    import jax.numpy as jnp

    def f(x: Any) -> Any:
        y = jnp.zeros((7, 6), np.float32).at[jnp.array([0, 3, 3, 6])].add(x * np.float32(0.1))
        return jax.nn.softmax(y.astype(np.float32), axis=-1)

    outputs = run(imported(f, X), {"x": X}, dtype=np.float64)
    with jax.enable_x64(True):
        y = np.zeros((7, 6))
        np.add.at(y, [0, 3, 3, 6], X.astype(np.float64) * np.float64(np.float32(0.1)))
        expected = np.exp(y) / np.exp(y).sum(-1, keepdims=True)
    np.testing.assert_allclose(outputs["output"], expected, rtol=1e-14)


def test_complex_numbers_are_pairs_of_float64() -> None:
    import jax.numpy as jnp

    turn = np.exp(0.3j * np.arange(4)).astype(np.complex64)

    def f(x: Any) -> Any:
        return jnp.real(jnp.fft.irfft(jnp.fft.rfft(x) * turn, n=6)) + jnp.abs(x.astype(jnp.complex64) * 1j)

    wanted = np.fft.irfft(np.fft.rfft(X.astype(np.float64)) * turn.astype(np.complex128), 6) + np.abs(
        X.astype(np.float64)
    )
    np.testing.assert_allclose(run(imported(f, X), {"x": X}, dtype=np.float64)["output"], wanted, atol=1e-14)


def test_indices_are_drawn_inside_what_they_index() -> None:
    """JAX takes every number for an index; those out of range are clipped, or give NaN."""
    import jax
    import jax.numpy as jnp

    from distir.frontends.jax import import_step

    def loss(table: Any, last: Any, x: Any, y: Any) -> Any:
        logs = jax.nn.log_softmax(table[x] @ last)
        picked = jnp.take_along_axis(logs, y[:, None], axis=1)[:, 0]
        return jnp.where(y == -100, 0.0, -picked).sum()

    places = np.arange(4)
    module = import_step(jax.grad(loss), (np.ones((11, 5), np.float32), np.ones((5, 7), np.float32), places, places))
    assert index_limit(module, "x") == 11
    assert index_limit(module, "y") == 7
    assert special_indices(module, "x") == []


def test_primitives_on_arrays_are_those_of_jax() -> None:
    """What discovery computes in numpy: on doubles what JAX gives, on exact scalars the same where numbers are whole. What
    is decided by order or by division is compared on doubles only."""
    import jax
    import jax.numpy as jnp

    from distir.interpreters.exact.arrays import scalars
    from distir.interpreters.exact.scalars import PRIME
    from distir.interpreters.jax.arrays import TABLE
    from distir.interpreters.jax.primitives import run_jax, run_jax_in_range

    def f(x: Any, y: Any) -> Any:
        image = jax.lax.pad(x, np.float32(2), ((1, 2, 0), (-1, 1, 1)))
        return (
            image,
            x + y - x * 3.0,
            jnp.maximum(x, y) / jnp.minimum(-x, 7.5),
            x**3 + jnp.square(y) + jax.lax.integer_pow(y, -2),
            jnp.where(x >= y, x, y),
            jnp.where((x == y) | (x != y) | (x < y) | (x > y) | (x <= y), x, 0.0),
            jnp.einsum("bij,bjk->ik", x.reshape(2, 2, 6), y.reshape(2, 6, 2)),
            jax.lax.dot_general(x.reshape(2, 3, 4), y.reshape(4, 2, 3), (((2,), (0,)), ((0,), (1,)))),
            jax.lax.conv_general_dilated(
                x.reshape(2, 4, 3), y.reshape(4, 2, 3), (2,), ((2, -1),), (3,), (2,), feature_group_count=2
            ),
            jax.lax.conv_general_dilated(
                x.reshape(2, 3, 4),
                y.reshape(3, 4, 2),
                (1,),
                ((0, 2),),
                dimension_numbers=("NHC", "HIO", "CNH"),
                batch_group_count=2,
            ),
            x.sum(0) + x.max(0) + x.min(0) + x.prod(0),
            jnp.cumsum(x, axis=1) + jax.lax.cumprod(y, axis=0, reverse=True),
            x[None, 1:4:2, ::-1].transpose(2, 0, 1).squeeze(1),
            jnp.concatenate([x, y], axis=1),
            jnp.split(x, [1, 3], axis=1),
            jax.lax.stop_gradient(x).astype(np.float64).astype(np.float32),
        )

    whole = {
        "add",
        "sub",
        "mul",
        "neg",
        "square",
        "reduce_sum",
        "reduce_prod",
        "cumsum",
        "dot_general",
        "conv_general_dilated",
        "pad",
        "transpose",
    }
    met: set[str] = set()
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        module = imported(f, X, np.flip(X) + np.float32(0.125))
    for op in module.walk():
        kinds = {str(v.type.element_type) for v in op.operands}  # pyright: ignore
        if op.name.removeprefix("jax.") not in TABLE or "f32" not in kinds or not kinds <= {"f32", "i1"}:
            continue
        met.add(op.name.removeprefix("jax."))
        drawn = [(v.type, np.asarray(rng.integers(-9, 10, v.type.get_shape()) + 0.5)) for v in op.operands]  # pyright: ignore
        arrays = [array if "f32" in str(type_) else array > 0 for type_, array in drawn]
        for want, got in zip(run_jax(op, arrays), run_jax_in_range(op, arrays), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=str(op))
        if op.name.removeprefix("jax.") in whole:
            arrays = [np.asarray(np.floor(array)) for array in arrays]
            exact = run_jax_in_range(op, [scalars(array) for array in arrays])
            for want, got in zip(run_jax(op, arrays), exact, strict=True):
                numbers = [int(number) % PRIME for number in want.reshape(-1)]
                assert [scalar.value for scalar in got.reshape(-1)] == numbers, str(op)
    assert met >= set(TABLE) - {"add_any", "copy", "copy_p"}


@pytest.mark.parametrize("element", [np.int32, np.uint8, np.bool_])
def test_a_cast_to_integers_is_cut(element: Any) -> None:
    """Which doubles have a value in, though exact scalars have none: beyond what it holds too."""
    from distir.interpreters.jax.primitives import run_jax, run_jax_in_range
    from distir.passes.shardcombine.discovery import Discovery
    from distir.passes.shardcombine.domains import InterpreterDomains

    op = next(op for op in imported(lambda x: x.astype(element), X).walk() if op.name.startswith("jax."))
    assert str(Discovery(InterpreterDomains()).rule(op)).startswith("#dist.rule<[S1, S2] ->")
    numbers = np.array([0, -0.5, 1.7, -1.7, 3e9, -3e9, 300, -1e30, np.nan, np.inf, -np.inf, 2**31 - 1.5])
    for want, got in zip(run_jax(op, [numbers]), run_jax_in_range(op, [numbers]), strict=True):
        assert want.dtype == got.dtype == element
        np.testing.assert_array_equal(got, want)


def test_all_dims_of_a_convolution_by_groups_of_samples_are_cut() -> None:
    """The gradient by its kernel of one by groups of channels. XLA takes its time for each shape: the search came to no rows."""
    import jax

    from distir.passes.shardcombine.discovery import Discovery
    from distir.passes.shardcombine.domains import InterpreterDomains

    def function(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", batch_group_count=2)

    x, w = np.ones((4, 4, 9, 8), np.float32), np.ones((8, 4, 3, 3), np.float32)
    op = next(op for op in imported(function, x, w).walk() if op.name.startswith("jax."))
    rule = str(Discovery(InterpreterDomains()).rule(op))
    assert "[S1 * S2, S3, S5(halo = [0, 2]), S6(halo = [0, 2])], [S1 * S4, S3, _, _]" in rule
    assert "partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact" in rule


@pytest.mark.long
def test_rules_are_found_exactly() -> None:
    """All but scatters of the transformer's step, which add what an index repeats."""
    module, _, _ = annotated()
    rules = {(op.name, str(op.attributes["dist.rule"])) for op in module.walk() if "dist.rule" in op.attributes}
    probed = {name for name, rule in rules if "found = probed" in rule}
    assert probed <= {"jax.scatter-add"}


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: __import__("jax").debug.print("{}", x) or x, "side effect"),
        (lambda x: x.foo, "cannot trace"),
    ],
)
def test_what_a_program_cannot_hold_is_refused(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(DistirError, match=reason) as caught:
        imported(function, X)
    assert "\n" not in str(caught.value)


def test_roles_are_checked() -> None:
    with pytest.raises(DistirError, match="no role 'weights'"):
        imported(lambda x: x, X, arguments=("weights",))
    with pytest.raises(DistirError, match="expected 1 leaves, got 2"):
        imported(lambda x: ((x, x),), X, arguments=("parameter",), results=("parameter",))


# --- a training step of a transformer ---------------------------------------------------------------------------------


@cache
def transformer() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / "transformer_jax.py"))


@cache
def annotated() -> tuple[ModuleOp, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The step with rules, its inputs, and what it computes in float64."""
    from distir.passes.dtp_parallelize import prepare

    args = transformer()["arguments"]()
    module = transformer()["build"](*args)
    inputs = {**weights_of(module), "tokens": args[2], "targets": args[3]}
    expected = run(module, inputs, dtype=np.float64)
    prepare(Context(), module)
    return module, inputs, expected


def assert_agree(expected: dict[str, np.ndarray], got: dict[str, np.ndarray], tolerance: float) -> None:
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=tolerance * max(1.0, np.abs(value).max()))


@pytest.mark.long
def test_three_steps_equal_jax() -> None:
    import jax

    args = transformer()["arguments"]()
    module = reparsed(transformer()["build"](*args))
    params, momentum, tokens, targets = args
    names = _argument_names(module)
    values = dict(zip(names, map(np.asarray, jax.tree.leaves(args)), strict=True))
    for _ in range(3):
        outputs = run(module, values)
        params, momentum, loss = transformer()["train"](params, momentum, tokens, targets)
        np.testing.assert_allclose(outputs["output2"], loss, rtol=1e-6)
        for want, name in zip(jax.tree.leaves((params, momentum)), names, strict=False):
            np.testing.assert_allclose(outputs[name], want, rtol=0, atol=1e-6 * max(1.0, np.abs(want).max()))
        values |= {name: value for name, value in outputs.items() if name in values}


@pytest.mark.parametrize(
    "options",
    [
        {"dp": 2, "tp": 2},
        pytest.param({"pp": 2, "microbatches": 4, "schedule": "1f1b"}, marks=pytest.mark.long),
        pytest.param({"dp": 2, "tp": 2, "pp": 2, "microbatches": 2}, marks=pytest.mark.long),
    ],
)
def test_the_step_is_distributed(options: dict[str, Any]) -> None:
    from distir.passes.dtp_parallelize import DtpParallelizePass

    module, inputs, expected = annotated()
    distributed = module.clone()
    DtpParallelizePass(**options).apply(Context(), distributed)
    distributed.verify()
    check_module(distributed)
    assert_agree(expected, run(distributed, inputs, dtype=np.float64), 1e-10)


SHARDED = """
import sys, runpy, numpy as np, jax
from distir.backends.jax import sharded_function
from distir.frontends.weights import load
module = load(sys.argv[1])
inputs = dict(np.load(sys.argv[2]))
assert len(jax.devices()) == 2
step = jax.jit(sharded_function(module))
text = step.lower(inputs).compile().as_text()
outputs = {name: np.asarray(value) for name, value in step(inputs).items()}
np.savez(sys.argv[3], collectives=sum(text.count(f" {name}(") for name in ("all-reduce", "all-gather")), **outputs)
"""


@pytest.mark.long
def test_sharded_by_the_integer_program_and_back_in_jax(tmp_path: Path) -> None:
    """The plan runs here as a distributed program, and in JAX on two host devices as sharding constraints."""
    from distir.passes.apply_sharding import ApplyShardingPass
    from distir.passes.ilp_shard import IlpShardPass

    module, inputs, expected = annotated()
    planned, machine = module.clone(), tmp_path / "slow.toml"
    unit = (ROOT / "tests" / "filecheck" / "passes" / "Inputs" / "unit.toml").read_text()
    machine.write_text(unit.replace("f32 = { value = 1.0e18", "f32 = { value = 1.0e9"))  # worth cutting, small as it is
    IlpShardPass(mesh="tp=2", restrict="tp=model", machine=str(machine)).apply(Context(), planned)
    program, arrays, results = tmp_path / "step.mlir", tmp_path / "inputs.npz", tmp_path / "outputs.npz"
    program.write_text(str(planned))
    np.savez(arrays, **inputs)
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": str(ROOT / ".ns"),
    }
    subprocess.run(
        [sys.executable, "-c", SHARDED, str(program), str(arrays), str(results)], check=True, env=environment
    )
    outputs = dict(np.load(results))
    assert int(outputs.pop("collectives")) > 0
    assert_agree(expected, outputs, 1e-5)
    ApplyShardingPass().apply(Context(), planned)
    planned.verify()
    check_module(planned)
    assert_agree(expected, run(planned, inputs, dtype=np.float64), 1e-10)


def test_layers_that_scatter_are_one_function_whose_rules_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a scatter does with what it meets is a graph inside it, which is no other in the next layer, or in the next run."""
    import jax
    import jax.numpy as jnp

    from distir.passes.outline_repeats import OutlineRepeatsPass
    from distir.passes.shardcombine.discovery import Discovery
    from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass

    def network(weights: Any, x: Any, senders: Any, receivers: Any) -> Any:
        for weight in weights:
            x = x + jnp.tanh(jax.ops.segment_sum((x @ weight)[senders], receivers, num_segments=6))
        return x

    edges = np.array([0, 1, 5, 3, 2, 4, 1, 0])
    weights = [np.eye(4, dtype=np.float32) * (i + 1) for i in range(3)]
    arguments = weights, np.ones((6, 4), np.float32), edges, edges[::-1].copy()
    module = imported(network, *arguments)
    OutlineRepeatsPass().apply(Context(), module)
    assert sum(op.name == "jax.scatter-add" for op in module.walk()) == 1
    monkeypatch.setenv("DISTIR_CACHE_DIR", str(tmp_path))
    again = reparsed(module)
    ShardcombineAnnotatePass().apply(Context(), module)
    monkeypatch.setattr(Discovery, "_rule", lambda *_: pytest.fail("it is asked again"))
    ShardcombineAnnotatePass().apply(Context(), again)
    assert "jax.scatter-add" in str(module)
    assert str(again) == str(module)
