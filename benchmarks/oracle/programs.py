"""The grids that are checked: the paper's configurations of 16 devices, from the paper's programs or from our own transform."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from xdsl.dialects.builtin import ModuleOp

from benchmarks.paper import gpt2, grid, mlp
from benchmarks.paper.mlp_stages import Configuration
from benchmarks.paper.sequential import Transform

Source = Literal["paper", "dtp-parallelize"]
MODELS = [*gpt2.MODELS, *mlp.MODELS]


def configurations(batches: Iterable[int]) -> list[Configuration]:
    """All, in an order in which neighbours have one structure: 1035 for the paper's batches."""
    found = [c for batch in batches for c in grid.configurations(batch)]
    return sorted(found, key=lambda c: (c.D, c.T, c.P, c.K, c.batch))


def sample(found: list[Configuration], count: int) -> list[Configuration]:
    """So many, evenly over the grid in order of `size`; the largest is one of them."""
    ordered = sorted(found, key=size, reverse=True)
    return [ordered[i * len(ordered) // count] for i in range(count)]


def size(c: Configuration) -> tuple[int, int, int]:
    """Operations grow with D * T * K; of programs with as many, messages and batch tell."""
    return c.D * c.T * c.K, c.T, c.batch


def builder(model: str, layers: int | None, source: Source) -> Callable[[Configuration], ModuleOp]:
    """Makes level-3 programs of a model with so many layers; None are the paper's."""
    if source == "dtp-parallelize":
        return Transform(model, layers).program
    if model in gpt2.MODELS:
        of_gpt2 = gpt2.MODELS[model]
        of_gpt2 = of_gpt2 if layers is None else replace(of_gpt2, layers=layers)
        return lambda c: gpt2.build(of_gpt2, c)
    of_mlp = mlp.MODELS[model]
    of_mlp = of_mlp if layers is None else replace(of_mlp, layers=layers)
    return lambda c: mlp.build(of_mlp, c)
