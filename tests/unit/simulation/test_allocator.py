"""The caching allocator by the rules of c10/cuda/CUDACachingAllocator.cpp: what is expected is derived by hand beside each case."""

from __future__ import annotations

import pytest

from distir.interpreters.machines import Memory
from distir.interpreters.simulate.allocator import Block, CachingAllocator

MIB = 1 << 20
CUDA = Memory(allocator_granularity_bytes=512, allocator_segment_bytes=2 * MIB)


def run(requests: str, memory: Memory = CUDA, capacity: int = 1 << 40) -> CachingAllocator:
    """Requests such as "a=40 b=80@other -a": MiB by name, on a stream, and what is freed."""
    allocator, blocks = CachingAllocator(memory, capacity), dict[str, Block]()
    for request in requests.split():
        if request.startswith("-"):
            allocator.free(blocks.pop(request[1:]))
        else:
            name, _, size = request.partition("=")
            size, _, stream = size.partition("@")
            blocks[name] = allocator.allocate(round(float(size) * MIB), stream)
    return allocator


@pytest.mark.parametrize(
    ("requests", "mib"),
    [
        pytest.param("a=40 b=80 c=80 -a -b d=80 e=80", 280, id="no free block of 40 serves 80"),
        pytest.param("a=30 -a b=10 c=20", 30, id="a free block is split"),
        pytest.param("a=30 -a b=10 c=20 -b -c d=30", 30, id="and joined again"),
        pytest.param("a=30 -a b=29.5 c=1.5", 50, id="what is left up to 1 MiB is part of the block"),
        pytest.param("a=30 -a b=30@other", 60, id="streams share nothing"),
        pytest.param("a=20 b=40 -a -b c=15", 60, id="of two blocks the smaller is taken, and no other"),
        pytest.param("a=5 b=5 c=5 d=5", 20, id="requests below 10 MiB share segments of 20"),
        pytest.param("a=5 b=5 c=5 d=5 e=5", 40, id="until one is full"),
        pytest.param("a=0.5 b=1 c=0.5", 2, id="those up to 1 MiB segments of 2"),
        pytest.param("a=11", 12, id="larger ones are multiples of 2 MiB"),
    ],
)
def test_what_is_reserved(requests: str, mib: int) -> None:
    assert run(requests).most == mib * MIB


def test_what_is_unused_is_given_back_where_the_device_would_be_full() -> None:
    """40 and 80 MiB, freed, serve no 100 MiB; of 200 MiB, 120 are reserved, so both are given back first."""
    allocator = run("a=40 b=80 -a -b c=100", capacity=200 * MIB)
    assert (allocator.reserved, allocator.most) == (100 * MIB, 120 * MIB)


def test_without_segments_what_is_reserved_is_live() -> None:
    allocator = run("a=40 b=80 -a c=30", Memory(allocator_granularity_bytes=512))
    assert (allocator.reserved, allocator.most) == (110 * MIB, 120 * MIB)
