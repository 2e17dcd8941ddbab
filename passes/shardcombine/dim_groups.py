"""Which slots vary together, by type inference alone. In go the slots of an op and its types at any point; out come its dim groups.

A *dim group* is a minimal set of slots that an op lets grow by a common ratio, with the result dims that then grow by
it; all other result dims must stay. For `x @ w` these are {x[0]} with result dim 0, {x[1], w[0]} with none, and {w[1]}
with result dim 1. A slot may be in several: the dim that a reshape cuts in two grows with either part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from distir.passes.shardcombine.probe_op import Point, Shapes, Slot

Types: TypeAlias = Callable[[Point], Shapes | None]
"""Result shapes at a point, None where the op rejects it."""

_RATIOS = (3, 5)
_LARGEST_POOL_FOR_TRIPLES = 8
_MANY_OPERANDS = 8
"""Of more operands of one rank (what a stack or a concatenation takes), two alone are not tried together."""
_MOST_TOGETHER = 9
"""Slots of which all subsets are tried."""


@dataclass(frozen=True)
class DimGroup:
    """Slots (by index) that grow together, and the (result, dim) that grow with them."""

    slots: tuple[int, ...]
    results: tuple[tuple[int, int], ...]


def scaled_dims(types: Types, point: Point, members: Iterable[int]) -> tuple[tuple[int, int], ...] | None:
    """The result dims that grow with these slots; None if the op does not let them grow, or not by the same ratio."""
    base = types(point)
    if base is None:
        return None
    members = frozenset(members)
    effects: set[tuple[tuple[int, int], ...]] = set()
    for ratio in _RATIOS:
        shapes = types(tuple(v * ratio if i in members else v for i, v in enumerate(point)))
        if shapes is None or len(shapes) != len(base):
            return None
        effect: list[tuple[int, int]] = []
        for r, (before, after) in enumerate(zip(base, shapes, strict=True)):
            if before is None or after is None:
                if before is not after:
                    return None
                continue
            if len(before) != len(after):
                return None
            for d, (old, new) in enumerate(zip(before, after, strict=True)):
                if new == old * ratio and old:
                    effect.append((r, d))
                elif new != old:
                    return None
        effects.add(tuple(effect))
        if len(effects) > 1:
            return None
    return effects.pop()


def dim_groups(
    slots: Sequence[Slot], point: Point, types: Types, likely: Sequence[Sequence[int]] = ()
) -> list[DimGroup]:
    """The dim groups of an op at a point, smallest first.

    Dims are seeds; a size entry that grows alone without effect is no size of the op, but may be a partner. Of sets of three
    or more, the `likely` ones are tried first."""

    def effect_of(*members: int) -> tuple[tuple[int, int], ...] | None:
        return scaled_dims(types, point, members)

    found: list[DimGroup] = []
    alone = [effect_of(i) for i in range(len(slots))]
    for i, effect in enumerate(alone):
        if effect is not None and (effect or not slots[i].is_size):
            found.append(DimGroup((i,), effect))
    pool = [i for i in range(len(slots)) if not alone[i]]
    covered: set[int] = {i for i in pool if alone[i] is not None and not slots[i].is_size}
    for i, j in _pairs(slots):
        if (effect := _pair_effect(i, j, slots, alone, effect_of)) is not None:
            found.append(DimGroup((i, j), effect))
            covered |= {i, j}
    found = _with_their_sizes(found, slots, point, effect_of)
    for bounded in _bounded_sets(pool, covered, slots, point, alone, effect_of):
        least = min(point[i] for i in bounded.slots)
        bound = {i for i in bounded.slots if point[i] == least}
        found = [group for group in found if len(group.slots) > 1 or bound.isdisjoint(group.slots)]
        found.append(bounded)
        covered |= set(bounded.slots)
    with_sizes = {i for group in found if group.results for i in group.slots if len(group.slots) > 1}
    found += [
        group
        for seed in pool
        if alone[seed] == () and not slots[seed].is_size and seed not in with_sizes
        for group in _with_two_sizes(seed, pool, slots, effect_of)
    ]
    seeds = [i for i in pool if not slots[i].is_size]
    for seed in (*seeds, *seeds):  # again: what other seeds cover tells dims of equal extents apart
        if seed in covered:
            continue
        for larger in _larger_sets(seed, pool, covered, slots, point, effect_of, likely):
            members = _thinned(set(larger), seed, [set(group.slots) for group in found], effect_of)
            effect = effect_of(*members)
            if effect is not None:
                found.append(DimGroup(members, effect))
                covered |= set(members)
    around: list[DimGroup] = []
    for seed in pool:
        if seed not in covered and not slots[seed].is_size:
            found += _within_another(seed, slots, alone, effect_of)
        if seed not in covered and slots[seed].is_size and alone[seed] is None:
            around += _around_a_size(seed, pool, [*found, *around], slots, point, effect_of)
    known = {group.slots for group in (*found, *around)}
    return [*found, *(each for each in around if not _is_joined(each.slots, known, effect_of))]


def _pairs(slots: Sequence[Slot]) -> list[tuple[int, int]]:
    """Slots that may grow together, two by two; without those of two of many operands of one rank, of which there are too many."""
    ranks = Counter(slot.length for slot in slots if not slot.is_size and slot.position == 0)

    def are_of_many(a: Slot, b: Slot) -> bool:
        is_of_others = a.owner != b.owner and not a.is_size and not b.is_size
        return is_of_others and a.length == b.length and ranks[a.length] > _MANY_OPERANDS

    return [(i, j) for i, j in combinations(range(len(slots)), 2) if not are_of_many(slots[i], slots[j])]


def _with_their_sizes(
    found: Sequence[DimGroup],
    slots: Sequence[Slot],
    point: Point,
    effect_of: Callable[..., tuple[tuple[int, int], ...] | None],
) -> list[DimGroup]:
    """Those found, with a dim that says nothing of results and the size at its place that does, alone, as one: what a resize makes of a
    dim is of any extent, as far as types go, and a shard has its part of both."""
    free = [group.slots[0] for group in found if len(group.slots) == 1 and not group.results]
    joined: dict[int, DimGroup] = {}
    for group in found:
        (i, *others) = group.slots
        for j in free if slots[i].is_size and not others else ():
            is_its_own = (slots[i].position, slots[i].length) == (slots[j].position, slots[j].length)
            if is_its_own and 0 in (point[i] % point[j], point[j] % point[i]) and effect_of(i, j) == group.results:
                joined[i] = joined[j] = DimGroup(tuple(sorted((i, j))), group.results)
                break
    alone = [group for group in found if len(group.slots) > 1 or joined.keys().isdisjoint(group.slots)]
    return [*alone, *dict.fromkeys(joined.values())]


def _around_a_size(
    seed: int,
    pool: Sequence[int],
    found: Sequence[DimGroup],
    slots: Sequence[Slot],
    point: Point,
    effect_of: Callable[..., tuple[tuple[int, int], ...] | None],
) -> list[DimGroup]:
    """What a size grows with that is in no dim group and may not grow alone: the number of groups, with all the channels that
    it divides, some of which may grow without it too."""
    known = {group.slots for group in found}
    grouped = [seed, *(i for i in pool if point[i] % point[seed] == 0)]
    wholes = [group.slots for group in found if all(point[i] % point[seed] == 0 for i in group.slots)]
    supersets = _larger_sets(seed, pool, set(), slots, point, effect_of)
    covered = {i for members in known for i in members}
    open_too = [i for i in pool if point[i] == point[seed] and i not in covered]
    supersets += [tuple(sorted({seed, *members, *open_too})) for members in wholes if len(open_too) > 1]
    supersets += [tuple(sorted({seed, *members, i})) for members in wholes for i in grouped]
    divided = {i for i in range(len(slots)) if point[i] % point[seed] == 0}
    supersets.append(_thinned(divided, seed, [set(each) for each in known], effect_of))
    for members in supersets:
        if len(members) > 2 and members not in known and (effect := effect_of(*members)):
            if not _is_joined(members, known, effect_of):
                return [DimGroup(members, effect)]
    return []


def _is_joined(
    members: tuple[int, ...],
    known: Iterable[tuple[int, ...]],
    effect_of: Callable[..., tuple[tuple[int, int], ...] | None],
) -> bool:
    """Whether these are a known dim group and numbers that balance each other without it (a dilation and its paddings)."""
    rests = (set(members) - set(group) for group in known if set(group) < set(members))
    return any(len(rest) > 1 and effect_of(*sorted(rest)) is not None for rest in rests)


def _thinned(
    members: set[int],
    seed: int,
    known: Sequence[set[int]],
    effect_of: Callable[..., tuple[tuple[int, int], ...] | None],
) -> tuple[int, ...]:
    """What has to grow with the seed, of slots that may grow together: without what may grow apart from it."""
    for part in (*(each for each in known if len(each) > 1), *({i} for i in sorted(members, reverse=True))):
        rest = members - part
        if seed in rest and part <= members and len(rest) > 1 and effect_of(*sorted(rest)) is not None:
            members = rest
    return tuple(sorted(members))


def _bounded_sets(
    pool: Sequence[int],
    covered: set[int],
    slots: Sequence[Slot],
    point: Point,
    alone: Sequence[tuple[tuple[int, int], ...] | None],
    effect_of: Callable[..., tuple[tuple[int, int], ...] | None],
) -> list[DimGroup]:
    """A dim that may not grow alone because another bounds it, with those: the rows of the indices of a gather, which may
    be fewer than those of the table, and both grow together; those of the indices of a scatter, with what is scattered; or because others
    are multiples of it (heads that share keys)."""
    found: list[DimGroup] = []
    taken: set[int] = set()
    for seed in pool:
        if slots[seed].is_size or seed in covered or seed in taken or alone[seed] is not None:
            continue
        at_its_place = [i for i, slot in enumerate(slots) if slot.position == slots[seed].position and not slot.is_size]
        equal = [i for i in at_its_place if point[i] == point[seed]]
        multiples = [i for i in at_its_place if point[i] % point[seed] == 0]
        of_its_rank = [i for i in multiples if slots[i].length == slots[seed].length]
        for members in (equal, multiples, of_its_rank):
            effect = effect_of(*members)
            if any(alone[i] is not None for i in members) and (effect or (members is equal and effect is not None)):
                break
        else:
            continue
        for i in members[::-1]:
            rest = [m for m in members if m != i]
            if i != seed and len(rest) > 1 and effect_of(*rest) is not None:
                members.remove(i)
        if (effect := effect_of(*members)) is not None:
            found.append(DimGroup(tuple(members), effect))
            taken |= set(members)
    return found


def _within_another(
    seed: int,
    slots: Sequence[Slot],
    alone: Sequence[tuple[tuple[int, int], ...] | None],
    effect_of: Callable[..., tuple[tuple[int, int], ...] | None],
) -> list[DimGroup]:
    """A dim that fits into another, which may grow without it: the window of a scatter in what it is scattered to."""
    for other, effect in enumerate(alone):
        if effect and not slots[other].is_size and effect_of(seed, other) == effect:
            return [DimGroup(tuple(sorted((seed, other))), effect)]
    return []


def _pair_effect(
    i: int,
    j: int,
    slots: Sequence[Slot],
    alone: Sequence[tuple[tuple[int, int], ...] | None],
    effect_of: Callable[..., tuple[tuple[int, int], ...] | None],
) -> tuple[tuple[int, int], ...] | None:
    """The effect of two slots growing together; None if they do not, or if that follows from one of them alone.

    A size that does nothing alone may still be needed by a dim that grows alone: the known part of a reshape's target
    whose rest is inferred."""
    if slots[i].is_size and slots[j].is_size and slots[i].owner == slots[j].owner:
        return None
    growing = [k for k in (i, j) if alone[k] is not None]
    if any(alone[k] and slots[k].is_size for k in growing):
        return None
    if growing and not any(slots[k].is_size for k in (i, j)):
        return None
    effect = effect_of(i, j)
    if growing and (not effect or any(effect == alone[k] for k in growing)):
        return None
    return effect


def _with_two_sizes(
    seed: int,
    pool: Sequence[int],
    slots: Sequence[Slot],
    effect_of: Callable[..., tuple[tuple[int, int], ...] | None],
) -> list[DimGroup]:
    """A dim that grows alone without effect (what a slice leaves out), with the two sizes that make it count."""
    for i, j in combinations([i for i in pool if slots[i].is_size], 2):
        if effect := effect_of(seed, i, j):
            return [DimGroup((seed, i, j), effect)]
    return []


def _larger_sets(
    seed: int,
    pool: Sequence[int],
    covered: set[int],
    slots: Sequence[Slot],
    point: Point,
    effect_of: Callable[..., tuple[tuple[int, int], ...] | None],
    likely: Sequence[Sequence[int]] = (),
) -> list[tuple[int, ...]]:
    """Accepted sets of three or more slots around a seed: likely supersets thinned out, else all triples."""

    def from_right(i: int) -> int:
        return slots[i].length - slots[i].position

    open_dims = [i for i in pool if i not in covered and not slots[i].is_size]
    equal = [i for i in pool if point[i] == point[seed]]
    uncovered = [i for i in equal if i not in covered]
    at_its_place = [i for i in equal if slots[i].position == slots[seed].position]
    dims_there = [
        i for i in at_its_place if not slots[i].is_size and slots[i].length > 1
    ]  # a vector's may be any other's
    supersets = [
        *(list(each) for each in likely if seed in each),
        uncovered,
        at_its_place,
        [i for i in equal if from_right(i) == from_right(seed)],
        equal,
        [i for i in open_dims if slots[i].position == slots[seed].position],
        [i for i in open_dims if from_right(i) == from_right(seed)],
        *(
            [seed, *(i for i in pool if slots[i].owner == o)]
            for o in dict.fromkeys(s.owner for s in slots if s.is_size)
        ),
        open_dims,
        *([*equal, i] for i in pool if i not in equal and len(equal) > 1),
        *([*uncovered, i] for i in equal if i in covered and len(uncovered) > 1),
        *([*dims_there, i] for i in pool if i not in dims_there and len(dims_there) > 1),
    ]
    accepted: list[tuple[int, ...]] = []
    for superset in supersets:
        members = dict.fromkeys([seed, *superset])
        if len(members) < 3 or effect_of(*members) is None:
            continue
        for i in list(members)[:0:-1]:
            if effect_of(*(m for m in members if m != i)) is not None:
                del members[i]
        accepted.append(_without_others_together(tuple(sorted(members)), seed, effect_of))
    if accepted:  # two dims of three operands, all of one size, may all grow together: each alone is smaller
        return [min(accepted, key=len)]
    others = [i for i in pool if i != seed and i not in covered]
    if len(others) > _LARGEST_POOL_FOR_TRIPLES:
        return []
    for pair in combinations(others, 2):
        if effect_of(seed, *pair) is not None:
            return [tuple(sorted((seed, *pair)))]
    return []


def _without_others_together(
    members: tuple[int, ...], seed: int, effect_of: Callable[..., tuple[tuple[int, int], ...] | None]
) -> tuple[int, ...]:
    """What still grows with the seed without several others that go only together: the keys of a square mask, from its rows."""
    if len(members) <= _MOST_TOGETHER:
        for count in range(2, len(members) - 1):
            for others in combinations([i for i in members if i != seed], count):
                rest = tuple(i for i in members if i not in others)
                if effect_of(*rest) is not None:
                    return _without_others_together(rest, seed, effect_of)
    return members
