"""Calls of JAX primitives at drawn shapes and parameters, for `rule_sweep`: a generator of random numbers goes in; without end, names come
out with what makes one operation of the `jax` dialect and operands on which it runs."""

# pyright: basic

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

Draw = np.random.Generator
Call = tuple[Callable[..., Any], Sequence[np.ndarray]]


def of_jax(rng: Draw, only: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    makers = {name: maker for name, maker in _makers().items() if name.startswith(only)}
    while makers:
        for name in rng.permutation(sorted(makers)):
            seed = int(rng.integers(2**31))
            yield f"jax.{name}", partial(_operation, makers[str(name)], seed)


def drawn_calls() -> Iterator[Call]:
    """One of each."""
    yield from (maker(np.random.default_rng(0)) for maker in _makers().values())


def seeded_calls(count: int) -> Iterator[tuple[str, Sequence[np.ndarray], Callable[[], Any]]]:
    """So many of each, the same each time: names, operands, and what makes the operation."""
    for name, maker in _makers().items():
        for seed in range(count):
            yield f"jax.{name}", maker(np.random.default_rng(seed))[1], partial(_operation, maker, seed)


def _operation(maker: Callable[[Draw], Call], seed: int) -> Any:
    """The last operation of the program of a call, and its operands; ValueError if the call is none."""
    from xdsl.dialects.builtin import TensorType
    from xdsl.dialects.func import FuncOp
    from xdsl.rewriter import Rewriter

    from distir.frontends.jax import import_step
    from distir.interpreters.mixed import infer
    from distir.passes.shardcombine.domains import InterpreterDomains
    from distir.passes.shardcombine_annotate import is_operator

    function, arrays = maker(np.random.default_rng(seed))
    module = import_step(function, tuple(arrays))
    known, domains = infer(module), InterpreterDomains()
    main = next(f for f in module.ops if isinstance(f, FuncOp) and f.sym_name.data == "main")
    values: dict[Any, Any] = dict(zip(main.args, arrays, strict=True))
    found = None
    for op in main.body.block.ops:
        if op.dialect_name() in ("func", "dist"):
            break
        operands = [values[v] for v in op.operands]
        if is_operator(op) and operands:
            found = op, operands
        values.update(zip(op.results, domains.evaluate(op, operands), strict=True))
    if found is None:
        raise ValueError("no operator")
    for result in found[0].results:
        if isinstance(type_ := known.get(result), TensorType):
            Rewriter.replace_value_with_new_type(result, type_)
    return found


# --- drawing ---


def _shape(rng: Draw, least: int = 1, most: int = 4) -> tuple[int, ...]:
    return tuple(
        int(n)
        for n in rng.choice(
            [0, 1, 2, 3, 4, 5, 6, 7], int(rng.integers(least, most + 1)), p=[0.03, 0.1, 0.17, *[0.14] * 5]
        )
    )


def _floats(rng: Draw, shape: Sequence[int]) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape), np.float32)


def _any(rng: Draw, shape: Sequence[int]) -> np.ndarray:
    kind = rng.integers(4)
    if kind == 0:
        return rng.integers(-4, 5, shape).astype(np.int32)
    if kind == 1:
        return rng.random(shape) < 0.5
    return _floats(rng, shape)


def _dim(rng: Draw, array: np.ndarray) -> int:
    return int(rng.integers(array.ndim))


def _makers() -> dict[str, Callable[[Draw], Call]]:
    import jax
    from jax import lax
    from jax import numpy as jnp

    made: dict[str, Callable[[Draw], Call]] = {}

    def call(function: Callable[[Draw], Call]) -> Callable[[Draw], Call]:
        made[function.__name__] = function
        return function

    for name in (
        "sin",
        "exp",
        "log1p",
        "erf",
        "lgamma",
        "tanh",
        "cbrt",
        "sign",
        "floor",
        "is_finite",
        "logistic",
        "abs",
        "neg",
    ):
        made[name] = lambda rng, f=getattr(lax, name): (f, [_floats(rng, _shape(rng))])
    for name in ("add", "mul", "sub", "max", "min", "atan2", "nextafter", "pow", "div", "rem"):
        made[name] = lambda rng, f=getattr(lax, name): (
            lambda x, y: f(x, y),
            [_floats(rng, s := _shape(rng)), _floats(rng, s)],
        )
    for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):

        def cumulative(rng: Draw, f: Any = getattr(lax, name)) -> Call:
            x = _floats(rng, _shape(rng))
            dim, reverse = _dim(rng, x), bool(rng.integers(2))
            return lambda x: f(x, dim, reverse=reverse), [x]

        made[name] = cumulative
    for name in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"):

        def reduced(rng: Draw, f: Any = getattr(jnp, name), several: bool = name not in ("argmax", "argmin")) -> Call:
            x = _any(rng, _shape(rng))
            dims = tuple(int(d) for d in np.flatnonzero(rng.random(x.ndim) < 0.5)) or (0,)
            return lambda x: f(x, dims if several else dims[0]), [x]

        made[f"reduce_{name}"] = reduced

    @call
    def dot_general(rng: Draw) -> Call:
        extents = [int(n) for n in rng.integers(1, 6, 5)]
        batch, contracted = int(rng.integers(3)), int(rng.integers(3))
        left = [*extents[:batch], *extents[2 : 2 + contracted], int(rng.integers(1, 5))]
        right = [*extents[:batch], *extents[2 : 2 + contracted], int(rng.integers(1, 5))]
        orders = [rng.permutation(len(left)), rng.permutation(len(right))]
        arrays = [_floats(rng, [dims[i] for i in order]) for dims, order in zip((left, right), orders, strict=True)]
        where = [[int(np.flatnonzero(order == i)[0]) for i in range(batch + contracted)] for order in orders]
        numbers = tuple(tuple(w[batch:]) for w in where), tuple(tuple(w[:batch]) for w in where)
        return lambda x, y: lax.dot_general(x, y, numbers), arrays

    @call
    def conv_general_dilated(rng: Draw) -> Call:
        spatial = int(rng.integers(1, 3))
        groups, batch_groups = [(1, 1), (2, 1), (1, 2)][int(rng.integers(3))]
        n, c, o = 2 * batch_groups, 2 * groups, 2 * groups * batch_groups
        x = _floats(rng, [n, c, *rng.integers(4, 9, spatial)])
        w = _floats(rng, [o, c // groups, *rng.integers(1, 4, spatial)])
        pads = [(int(a), int(b)) for a, b in rng.integers(-1, 4, (spatial, 2))]
        strides, left, right = ([int(n) for n in rng.integers(1, 4, spatial)] for _ in range(3))
        return (
            lambda x, w: lax.conv_general_dilated(
                x, w, strides, pads, left, right, feature_group_count=groups, batch_group_count=batch_groups
            ),
            [x, w],
        )

    @call
    def convert_element_type(rng: Draw) -> Call:
        x = np.float32(3) * _floats(rng, _shape(rng))
        element = [np.int32, np.uint8, np.bool_, np.float16][int(rng.integers(4))]
        return lambda x: lax.convert_element_type(x, element), [x]

    @call
    def reduce_window(rng: Draw) -> Call:
        x = _floats(rng, _shape(rng, 1, 3))
        window, strides, inner, outer = ([int(n) for n in rng.integers(1, most, x.ndim)] for most in (4, 4, 3, 3))
        pads = [(int(a), int(b)) for a, b in rng.integers(0, 4, (x.ndim, 2))]
        f, start = [(lax.add, 0.0), (lax.max, -np.inf), (lax.min, np.inf)][int(rng.integers(3))]
        return lambda x: lax.reduce_window(x, np.float32(start), f, window, strides, pads, inner, outer), [x]

    @call
    def slice(rng: Draw) -> Call:
        x = _any(rng, _shape(rng))
        starts = [int(rng.integers(0, n + 1)) for n in x.shape]
        stops = [int(rng.integers(a, n + 1)) for a, n in zip(starts, x.shape, strict=True)]
        return lambda x: lax.slice(
            x, starts, stops, [int(n) for n in np.random.default_rng(x.size).integers(1, 4, x.ndim)]
        ), [x]

    @call
    def pad(rng: Draw) -> Call:
        x = _floats(rng, _shape(rng))
        config = [
            (int(a), int(b), int(c))
            for a, b, c in zip(*rng.integers(-2, 5, (2, x.ndim)), rng.integers(0, 3, x.ndim), strict=True)
        ]
        return lambda x, v: lax.pad(x, v, config), [x, np.float32(rng.standard_normal())]

    @call
    def dynamic_slice(rng: Draw) -> Call:
        x = _floats(rng, _shape(rng, 1, 3))
        sizes = [int(rng.integers(0, n + 1)) for n in x.shape]
        return lambda x, *at: lax.dynamic_slice(x, at, sizes), [x, *(np.int32(n) for n in rng.integers(-9, 9, x.ndim))]

    @call
    def dynamic_update_slice(rng: Draw) -> Call:
        x = _floats(rng, _shape(rng, 1, 3))
        part = _floats(rng, [int(rng.integers(0, n + 1)) for n in x.shape])
        return lambda x, p, *at: lax.dynamic_update_slice(x, p, at), [
            x,
            part,
            *(np.int32(n) for n in rng.integers(-9, 9, x.ndim)),
        ]

    @call
    def gather(rng: Draw) -> Call:
        x = _any(rng, _shape(rng, 1, 3))
        dim = _dim(rng, x)
        indices = rng.integers(-9, 9, _shape(rng, 1, 2)).astype(np.int32)
        mode = ["clip", "fill", "wrap"][int(rng.integers(3))]
        return lambda x, i: jnp.take(x, i, dim, mode=mode), [x, indices]

    def scattered(method: str) -> Callable[[Draw], Call]:
        def make(rng: Draw) -> Call:
            x = _floats(rng, _shape(rng, 1, 3))
            indices = rng.integers(-9, 9, int(rng.integers(1, 6))).astype(np.int32)
            values = _floats(rng, [len(indices), *x.shape[1:]])
            mode = ["drop", "clip"][int(rng.integers(2))]
            return lambda x, i, v: getattr(x.at[i], method)(v, mode=mode), [x, indices, values]

        return make

    for method in ("set", "add", "max", "mul"):
        made[f"scatter_{method}"] = scattered(method)

    @call
    def take_along_axis(rng: Draw) -> Call:
        x = _floats(rng, _shape(rng, 1, 3))
        dim = _dim(rng, x)
        indices = rng.integers(0, max(x.shape[dim], 1), x.shape).astype(np.int32)
        return lambda x, i: jnp.take_along_axis(x, i, dim), [x, indices]

    @call
    def sort(rng: Draw) -> Call:
        x, y = _floats(rng, s := _shape(rng)), None
        y = rng.integers(0, 3, s).astype(np.int32)
        dim, keys = _dim(rng, x), int(rng.integers(1, 3))
        return lambda x, y: lax.sort((y, x), dimension=dim, num_keys=keys), [x, y]

    @call
    def top_k(rng: Draw) -> Call:
        x = _floats(rng, _shape(rng, 1, 3))
        k = int(rng.integers(0, x.shape[-1] + 1))
        return lambda x: lax.top_k(x, k), [x]

    @call
    def rev(rng: Draw) -> Call:
        x = _any(rng, _shape(rng))
        return lambda x: lax.rev(x, [d for d in range(x.ndim) if (x.size + d) % 2] or [0]), [x]

    @call
    def concatenate(rng: Draw) -> Call:
        x = _any(rng, _shape(rng))
        dim = _dim(rng, x)
        return lambda x, y: lax.concatenate([x, y, x], dim), [x, x[::-1].copy()]

    @call
    def split(rng: Draw) -> Call:
        x = _floats(rng, _shape(rng))
        dim = _dim(rng, x)
        first = int(rng.integers(0, x.shape[dim] + 1))
        return lambda x: lax.split(x, (first, x.shape[dim] - first), dim), [x]

    @call
    def reshape(rng: Draw) -> Call:
        x = _any(rng, _shape(rng, 2, 4))
        at = int(rng.integers(1, x.ndim))
        shape = [*x.shape[: at - 1], x.shape[at - 1] * x.shape[at], *x.shape[at + 1 :]]
        return lambda x: lax.reshape(x, shape), [x]

    @call
    def broadcast_in_dim(rng: Draw) -> Call:
        x = _any(rng, _shape(rng, 1, 3))
        dims = sorted(int(d) for d in rng.choice(5, x.ndim, replace=False))
        shape = [3] * 5
        for d, n in zip(dims, x.shape, strict=True):
            shape[d] = n if n != 1 else int(rng.integers(1, 4))
        return lambda x: lax.broadcast_in_dim(x, shape, dims), [x]

    @call
    def fft(rng: Draw) -> Call:
        x = _floats(rng, [int(n) for n in rng.integers(1, 7, 3)])
        kind, over = ["fft", "ifft", "rfft"][int(rng.integers(3))], int(rng.integers(1, 3))
        lengths = x.shape[-over:]
        x = x if kind == "rfft" else x.astype(np.complex64)
        return lambda x: lax.fft(x, {"fft": "FFT", "ifft": "IFFT", "rfft": "RFFT"}[kind], lengths), [x]

    for name, function in (
        ("cholesky", lambda x: lax.linalg.cholesky(x @ jnp.swapaxes(x, -1, -2) + jnp.eye(x.shape[-1]))),
        ("qr", lambda x: lax.linalg.qr(x)),
        ("lu", lambda x: lax.linalg.lu(x)),
        ("svd", lambda x: jnp.linalg.svd(x, compute_uv=False)),
    ):
        made[name] = lambda rng, f=function: (
            f,
            [_floats(rng, [int(rng.integers(1, 4)), int(rng.integers(1, 4)), *[int(rng.integers(1, 5))] * 2])],
        )

    @call
    def triangular_solve(rng: Draw) -> Call:
        n, left = int(rng.integers(1, 5)), bool(rng.integers(2))
        a = _floats(rng, [3, n, n]) + 3 * np.eye(n, dtype=np.float32)
        b = _floats(rng, [3, n, 4] if left else [3, 4, n])
        lower, transposed, unit = (bool(rng.integers(2)) for _ in range(3))
        return lambda a, b: lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=transposed, unit_diagonal=unit
        ), [a, b]

    @call
    def select_n(rng: Draw) -> Call:
        s = _shape(rng)
        return lambda w, x, y: lax.select_n(w, x, y), [rng.random(s) < 0.5, _floats(rng, s), _floats(rng, s)]

    @call
    def clamp(rng: Draw) -> Call:
        s = _shape(rng)
        return lambda a, x, b: lax.clamp(a, x, b), [np.float32(-1), _floats(rng, s), np.float32(rng.standard_normal())]

    @call
    def complex_numbers(rng: Draw) -> Call:
        s = _shape(rng)
        f = [lax.complex, lambda x, y: lax.abs(lax.complex(x, y)), lambda x, y: lax.conj(lax.complex(x, y))][
            int(rng.integers(3))
        ]
        return lambda x, y: f(x, y), [_floats(rng, s), _floats(rng, s)]

    @call
    def integer_pow(rng: Draw) -> Call:
        power = int(rng.integers(-3, 9))
        return lambda x: lax.integer_pow(x, power), [_floats(rng, _shape(rng))]

    @call
    def shifts(rng: Draw) -> Call:
        s = _shape(rng)
        f = [lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic, lax.bitwise_xor][int(rng.integers(4))]
        return lambda x, y: f(x, y), [
            rng.integers(-99, 99, s).astype(np.int32),
            rng.integers(0, 40, s).astype(np.int32),
        ]

    @call
    def gradient_of_pooling(rng: Draw) -> Call:
        x = _floats(rng, [2, 6, 6])
        step, window = int(rng.integers(1, 4)), int(rng.integers(1, 4))

        def pooled(x: Any) -> Any:
            return lax.reduce_window(x, -np.inf, lax.max, (1, window, window), (1, step, step), "VALID").sum()

        return jax.grad(pooled), [x]

    return made
