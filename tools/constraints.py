"""Constraints on the plans of a search: `--dp 2..8 --tp 4,8 --pp 1 --most-tensor 8 --tp-within-node`. In go the
options and the machine; out comes whether degrees are allowed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from distir.dialects.errors import DistirError
from distir.interpreters.machines import Machine

LARGEST = (1 << 31) - 1
"""Of a batch or a number of microbatches: bytes of larger ones have more than 64 bits."""
DEGREES = {
    "dp": "replicas that plans may have (default: any)",
    "dp-replicate": "groups of replicas: state is cut within a group, and each holds all of it (hybrid sharding, HSDP; default: 1, and to train a model, for the fastest plans, also one on each node)",
    "cp": "devices that share each sequence (context parallelism: attention passes keys and values around; default: 1, "
    "and to train a model with attention on more devices than rows also more, where a device has one row at a time)",
    "tp": "tensor ranks that plans may have (default: any)",
    "pp": "stages that plans may have (default: any)",
}


def add_constraints(parser: ArgumentParser) -> None:
    """The options."""
    for name, what in DEGREES.items():
        parser.add_argument(f"--{name}", metavar="N,A..B", help=what)
    parser.add_argument("--most-tensor", metavar="T", type=int, help="largest tensor parallel degree (default: any)")
    parser.add_argument(
        "--tp-within-node",
        action="store_true",
        help="no tensor parallel group spans two units of the machine's innermost level",
    )


@dataclass(frozen=True)
class Degrees:
    """Ranges of degrees, each of first and last; none: any, and of devices that share a sequence 1. A tensor axis divides `node`, if that is given."""

    ranges: dict[str, list[tuple[int, int]]]
    most_tensor: int | None = None
    node: int | None = None

    @classmethod
    def of(cls, args: Namespace, machine: Machine) -> Degrees:
        """Those of the options. Raises DistirError for a mistake in them."""
        if args.most_tensor is not None and args.most_tensor < 1:
            raise DistirError("--most-tensor: expected at least 1")
        given = {name: value for name in DEGREES if (value := getattr(args, name.replace("-", "_"))) is not None}
        node = machine.levels[0].devices if args.tp_within_node else None
        return cls({name: ranges(_text(value), f"--{name}") for name, value in given.items()}, args.most_tensor, node)

    def sharing(self, devices: int) -> list[int]:
        """How many devices may share a sequence."""
        given = self.ranges.get("cp", [(1, 1)])
        return [cp for cp in range(1, devices + 1) if devices % cp == 0 and any(a <= cp <= b for a, b in given)]

    def replicate(self, dp: int) -> list[int]:
        """In how many groups so many replicas may be."""
        given = self.ranges.get("dp-replicate", [(1, 1)])
        return [groups for groups in range(1, dp + 1) if dp % groups == 0 and any(a <= groups <= b for a, b in given)]

    def allows(self, dp: int, tp: int, pp: int) -> bool:
        """Whether plans may have these degrees."""
        degrees = {"dp": dp, "tp": tp, "pp": pp}
        inside = (any(a <= degrees[n] <= b for a, b in each) for n, each in self.ranges.items() if n in degrees)
        return tp <= (self.most_tensor or tp) and (self.node is None or self.node % tp == 0) and all(inside)

    def __str__(self) -> str:
        texts = {n: ",".join(f"{a}..{b}" if a < b else f"{a}" for a, b in each) for n, each in self.ranges.items()}
        most = {} if self.most_tensor is None else {"most-tensor": str(self.most_tensor)}
        options = [f"--{name} {text}" for name, text in (texts | most).items()]
        return " ".join(options + ["--tp-within-node"] * (self.node is not None))


def _text(value: object) -> str:
    """As the option has it: a Python program gives a number, or several."""
    return ",".join(map(str, cast(Sequence[object], value))) if isinstance(value, list | tuple) else str(value)


def ranges(text: str, option: str) -> list[tuple[int, int]]:
    """`1,4..8` as pairs of first and last. Raises DistirError."""
    found: list[tuple[int, int]] = []
    for item in text.split(","):
        first, dots, last = item.strip().partition("..")
        (low,), (high,) = integers(first, option), integers(last if dots else first, option)
        if low > high:
            raise DistirError(f"{option}: {item.strip()} is empty")
        found.append((low, high))
    return found


def integers(text: str, option: str) -> list[int]:
    """`2,4` in order, each once. Raises DistirError."""
    items = [item.strip() for item in text.split(",")]
    if not all(item.isdecimal() and len(item) < 1000 and int(item) > 0 for item in items):
        raise DistirError(f"{option}: expected positive numbers with commas between them, got '{text}'")
    numbers = sorted({int(item) for item in items})
    if numbers[-1] > LARGEST:
        raise DistirError(f"{option}: expected numbers up to {LARGEST}, got {numbers[-1]}")
    return numbers
