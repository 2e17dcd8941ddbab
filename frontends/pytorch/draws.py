"""Random draws of a model (dropout) as functions of a seed and of positions (operators of `distir.dialects.random`).
In goes a draw's shape; out comes the same tensor in a traced program, on every shard of it, and in eager PyTorch under `counted_draws`.

Each draw of a step has a key, the seed plus how many draws came before it, and the seed goes on by their number after a
step. Positions count the elements of each dim from 0. Rows of the batch are known by their number, an argument of the
program that is cut like any input: so replicas and microbatches draw what the whole batch would. Which dim of a tensor the
batch is, is known by its size: the first of as many elements as the batch, else the first of a multiple (heads or
tokens that were merged with it)."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes  # pyright: ignore

from distir.dialects.errors import DistirError
from distir.interpreters import random_tensors
from distir.interpreters.random import UNIFORM_BITS

SEED, ROWS = "random.seed", "random.rows"
"""The arguments of a program that draws: a number that counts draws, and the numbers of the batch's rows."""

_KNOWN_SEED = 0x5EED_D157
"""Of PyTorch's generator while a step runs: another one is the step's own."""

_LIBRARY = torch.library.Library("distir", "FRAGMENT")
_LIBRARY.define("bernoulli(Tensor key, Tensor[] positions, float probability) -> Tensor")
_LIBRARY.define("uniform(Tensor key, Tensor[] positions) -> Tensor")
_LIBRARY.impl("bernoulli", random_tensors.bernoulli, "CPU")
_LIBRARY.impl("uniform", random_tensors.uniform, "CPU")
_LIBRARY.impl("bernoulli", lambda key, positions, p: _on_meta(positions, torch.bool), "Meta")
_LIBRARY.impl("uniform", lambda key, positions: _on_meta(positions, torch.float32), "Meta")


def _on_meta(positions: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    return torch.empty([len(vector) for vector in positions], dtype=dtype, device="meta")


class Draws:
    """Draws of one step. `replacements` are for PyTorch's operators, those that draw and have one."""

    def __init__(self, seed: Tensor, rows: Tensor | None):
        self.seed, self.rows = seed, rows
        self._numbers: dict[int, int] = {}
        self._vectors: dict[int, Tensor] = {}

    @property
    def next_seed(self) -> Tensor:
        """The seed of the next step."""
        return self.seed + len(self._numbers)

    @property
    def any(self) -> bool:
        """Whether anything has been drawn."""
        return bool(self._numbers)

    def bernoulli(self, shape: Sequence[int], probability: float) -> Tensor:
        key, positions = self.key(), self.positions(shape)
        return torch.ops.distir.bernoulli(key, positions, float(probability)).reshape(shape)

    def uniform(self, shape: Sequence[int]) -> Tensor:
        return torch.ops.distir.uniform(self.key(), self.positions(shape)).reshape(shape)

    def normal(self, shape: Sequence[int]) -> Tensor:
        """By the method of Box and Muller."""
        radius = (-2.0 * torch.log(1.0 - self.uniform(shape))).sqrt()
        return radius * torch.cos(self.uniform(shape) * (2.0 * math.pi))

    def key(self) -> Tensor:
        """The key of this draw. What is computed again (activation checkpointing) finds PyTorch's generator as it was, and
        has the key that it had: by a number that is drawn there."""
        if torch.initial_seed() != _KNOWN_SEED:
            raise DistirError(
                "the step seeds PyTorch's generator (torch.manual_seed), so that every step draws the same, and a program draws other numbers in "
                "each: seed before the step, or make what is drawn a buffer"
            )
        with _disable_current_modes():
            ticket = int(torch.randint(2**62, ()).item())
        return self.seed + self._numbers.setdefault(ticket, len(self._numbers))

    def positions(self, shape: Sequence[int]) -> list[Tensor]:
        """One vector per dim; two for the dim that the batch is merged in."""
        rows = 0 if self.rows is None else len(self.rows)
        batch = next((d for d, n in enumerate(shape) if n == rows), None)
        if batch is None:
            batch = next((d for d, n in enumerate(shape) if rows and n and n % rows == 0), None)
        found: list[Tensor] = []
        for d, n in enumerate(shape):
            if d != batch or self.rows is None:
                found.append(self._vector(n))
            else:
                found += [self.rows] if n == rows else [self.rows, self._vector(n // rows)]
        return found

    def _vector(self, extent: int) -> Tensor:
        if extent not in self._vectors:
            self._vectors[extent] = torch.arange(extent)
        return self._vectors[extent]


def replacements(draws: Callable[[], Draws]) -> dict[Any, Callable[..., Any]]:
    """Operators that draw, as functions of the draws at the time."""
    aten = torch.ops.aten

    def bernoulli_(self: Tensor, p: float | Tensor = 0.5, *, generator: Any = None) -> Tensor:
        return self.copy_(true_with(self.shape, p, generator).to(self.dtype))

    def bernoulli(self: Tensor, p: float | Tensor | None = None, *, generator: Any = None) -> Tensor:
        return true_with(self.shape, self if p is None else p, generator).to(self.dtype)

    def true_with(shape: Sequence[int], p: float | Tensor, generator: Any) -> Tensor:
        _refuse_generator(generator)
        return draws().uniform(shape) < p if isinstance(p, Tensor) else draws().bernoulli(shape, p)

    def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        if train is False:
            return input.clone(), torch.ones(input.shape, dtype=torch.bool)
        kept = draws().bernoulli(input.shape, 1 - p)
        return input * kept * (0.0 if p == 1 else 1 / (1 - p)), kept

    def creating(draw: Callable[[Draws, Sequence[int]], Tensor]) -> Callable[..., Tensor]:
        def create(size: Sequence[int], *, dtype: torch.dtype | None = None, generator: Any = None, **_: Any) -> Tensor:
            _refuse_generator(generator)
            return draw(draws(), size).to(dtype or torch.get_default_dtype())

        return create

    def like(draw: Callable[[Draws, Sequence[int]], Tensor]) -> Callable[..., Tensor]:
        return lambda self, *, dtype=None, **_: draw(draws(), self.shape).to(dtype or self.dtype)

    def uniform_(self: Tensor, start: float = 0.0, stop: float = 1.0, *, generator: Any = None) -> Tensor:
        _refuse_generator(generator)
        return self.copy_((draws().uniform(self.shape) * (stop - start) + start).to(self.dtype))

    def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
        _refuse_generator(generator)
        return self.copy_((draws().normal(self.shape) * std + mean).to(self.dtype))

    def integers(shape: Sequence[int], low: int, high: int, dtype: torch.dtype | None = None) -> Tensor:
        if high - low > 1 << UNIFORM_BITS:
            raise DistirError(f"a program draws integers out of at most 2^{UNIFORM_BITS}, not out of {high - low}")
        drawn = (draws().uniform(shape).to(torch.float64) * (high - low)).floor() + low
        return drawn.to(dtype or torch.int64)

    def randint(low: int, high: int, size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return integers(size, low, high, dtype)

    def randint_like(self: Tensor, low: int, high: int, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return integers(self.shape, low, high, dtype or self.dtype)

    def random_(self: Tensor, low: int, high: int | None, *, generator: Any = None) -> Tensor:
        _refuse_generator(generator)
        return NotImplemented if high is None else self.copy_(integers(self.shape, low, high, self.dtype))

    def randperm(n: int, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return draws().uniform([n]).argsort().to(dtype or torch.int64)

    def exponential(shape: Sequence[int]) -> Tensor:
        return -torch.log(1.0 - draws().uniform(shape))

    def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
        _refuse_generator(generator)
        return self.copy_((exponential(self.shape) / lambd).to(self.dtype))

    def multinomial(self: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
        _refuse_generator(generator)
        if replacement and num_samples > 1:
            return NotImplemented
        return (self / exponential(self.shape).to(self.dtype)).topk(num_samples, -1).indices

    def rrelu(
        self: Tensor,
        noise: Tensor,
        lower: float = 1 / 8,
        upper: float = 1 / 3,
        training: bool = False,
        generator: Any = None,
    ) -> Any:
        _refuse_generator(generator)
        if not training:
            return NotImplemented
        slope = (draws().uniform(self.shape) * (upper - lower) + lower).to(self.dtype)
        return self * noise.copy_(torch.where(self <= 0, slope, 1.0))

    return {
        aten.randint.default: lambda high, size, **kwargs: randint(0, high, size, **kwargs),
        aten.randint.low: randint,
        aten.randint_like.default: lambda self, high, **kwargs: randint_like(self, 0, high, **kwargs),
        aten.randint_like.low_dtype: randint_like,
        getattr(aten.random_, "from"): random_,
        aten.random_.to: lambda self, to, **kwargs: random_(self, 0, to, **kwargs),
        aten.randperm.default: randperm,
        aten.exponential_.default: exponential_,
        aten.multinomial.default: multinomial,
        aten.rrelu_with_noise.default: rrelu,
        aten.bernoulli_.float: bernoulli_,
        aten.bernoulli_.Tensor: bernoulli_,
        aten.bernoulli.default: bernoulli,
        aten.bernoulli.p: bernoulli,
        aten.native_dropout.default: native_dropout,
        aten.native_dropout_backward.default: lambda gradient, kept, scale: gradient * kept * scale,
        aten.rand.default: creating(Draws.uniform),
        aten.rand_like.default: like(Draws.uniform),
        aten.randn.default: creating(Draws.normal),
        aten.randn_like.default: like(Draws.normal),
        aten.uniform_.default: uniform_,
        aten.normal_.default: normal_,
    }


def _refuse_generator(generator: Any) -> None:
    if generator is not None:
        raise DistirError("a program has no torch.Generator: draw without one, the program's draws have a seed")


class _Replacing(TorchDispatchMode):
    """Runs replacements for the operators that have one."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]]):
        super().__init__()
        self.table = table

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self.table.get(func, func)(*args, **(kwargs or {}))


@contextmanager
def restored_generator() -> Generator[None]:
    """PyTorch's generator starts from a known state, and is what it was afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_KNOWN_SEED)
        yield


@contextmanager
def counted_draws(seed: int, rows: Sequence[int] | Tensor | None = None) -> Generator[Draws]:
    """Eager PyTorch draws what a program draws whose arguments `random.seed` and `random.rows` are these; on CPU.

    with counted_draws(seed, range(len(x))) as draws:
        loss = cross_entropy(model(x), label)
        loss.backward()
    seed = int(draws.next_seed)
    """
    numbers = None if rows is None else torch.as_tensor(rows if isinstance(rows, Tensor) else list(rows))
    draws = Draws(torch.tensor(seed), numbers)
    with restored_generator(), _Replacing(replacements(lambda: draws)):
        yield draws
