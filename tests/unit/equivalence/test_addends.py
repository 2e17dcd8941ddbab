"""Partial sums along many paths: grouped leaves say what all of them say."""

import random

import pytest

from distir.dialects.reductions import Reduction
from distir.interpreters.proof import weights
from distir.interpreters.proof.indices import Mismatch, ranges
from distir.interpreters.proof.weights import MAIN, ONE, Addend, Leaf, Weights, addend, leaves_of, region, total

NEVER = 1 << 30


def summed(name: str, start: int, stop: int, extent: int) -> Addend | None:
    """A sum over some rows."""
    return addend(Reduction.SUM, [Leaf((MAIN,), (((), name, extent),), Weights(region(ranges([(start, stop)]), ONE)))])


def added(values: list[Addend | None]) -> Addend | None:
    """What an operation gives that adds its operands."""
    leaves = [
        Leaf((i, *leaf.path), tuple([((i, *path), factor, extent) for path, factor, extent in leaf.axes]), leaf.weights)
        for i, value in enumerate(values)
        for leaf in leaves_of(value)
    ]
    return addend(Reduction.SUM, leaves)


def of_devices(seed: int, devices: int, missing: tuple[int, int] | None) -> list[str]:
    """What the sums over devices of the values of a random program are; on one device a row of one sum may be missing."""
    weights.forget()
    values: list[list[Addend | None]] = []
    for device in range(devices):
        draw, start = random.Random(seed), 4 * device
        pool = [summed(f"k{i}", start, start + 4 - ((device, i) == missing), 4 * devices) for i in range(3)]
        for _ in range(6):
            pool.append(added([pool[draw.randrange(len(pool))] for _ in range(draw.choice([1, 2, 2, 3]))]))
        values.append(pool)
    found: list[str] = []
    for several in zip(*values, strict=True):
        try:
            found.append("whole" if total(Reduction.SUM, several) is None else "a part")
        except Mismatch:
            found.append("other ways")
    return found


@pytest.mark.parametrize("few", [1, 3])
def test_groups_of_leaves_are_what_their_leaves_are(monkeypatch: pytest.MonkeyPatch, few: int):
    for seed in range(80):
        for missing in (None, (0, 1), (1, 2)):
            monkeypatch.setattr(weights, "FEW", NEVER)
            expected = of_devices(seed, 2 + seed % 2, missing)
            monkeypatch.setattr(weights, "FEW", few)
            assert of_devices(seed, 2 + seed % 2, missing) == expected
            assert ("a part" in expected) == (missing is not None)


def test_what_is_used_twice_in_each_of_many_steps_has_few_leaves():
    weights.forget()
    halves = [summed("k", 0, 4, 8), summed("k", 4, 8, 8)]
    for _ in range(100):
        halves = [added([half, half]) for half in halves]
    assert all(half is not None and len(half.leaves) <= weights.FEW for half in halves)
    assert total(Reduction.SUM, tuple(halves)) is None
    with pytest.raises(Mismatch, match="4096"):
        total(Reduction.SUM, (halves[0], added([summed("k", 0, 4, 8)] * 40)))
