"""A search's choices as attributes, per mesh axis: the strategy of an op and the sharding of a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from distir.dialects.reductions import Reduction
from distir.dialects.sharding.rule_text import parse_pieces
from distir.dialects.sharding.states import REPLICATED, Partial, Pieces, Sharded, State


@dataclass(frozen=True)
class UseFactor:
    """Cut the op along a factor; `pieces` is how the factor itself is cut (empty: evenly, as one piece)."""

    factor: str
    pieces: Pieces = ()


@dataclass(frozen=True)
class UsePartial:
    """Pass partial values through, by entry `index` of the rule's `partial` list."""

    index: int


@dataclass(frozen=True)
class Replicate:
    """Every shard runs the whole op."""


Choice = UseFactor | UsePartial | Replicate


@irdl_attr_definition
class StrategyAttr(Data[tuple[str, tuple[tuple[str, Choice], ...]]]):
    """What an op does along each axis of a mesh: `#dist.strategy<@mesh, {"dp": S1, "tp": S3}>`; `_` replicates,
    `S3(pieces = [8, 8])` cuts in pieces, `partial(0)` passes partial values through.

    Lifecycle: a search adds it, `apply-sharding` removes it."""

    name = "dist.strategy"

    @staticmethod
    def of(mesh: str, choices: Mapping[str, Choice]) -> StrategyAttr:
        return StrategyAttr((mesh, tuple(choices.items())))

    @property
    def choices(self) -> dict[str, Choice]:
        return dict(self.data[1])

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[str, tuple[tuple[str, Choice], ...]]:
        def parse_choice() -> tuple[str, Choice]:
            axis = parser.parse_str_literal()
            parser.parse_punctuation(":")
            name = parser.parse_identifier("a factor, partial or _")
            if name == "_":
                return axis, Replicate()
            if name == "partial":
                with parser.in_parens():
                    return axis, UsePartial(parser.parse_integer())
            if parser.parse_optional_punctuation("("):
                pieces = parse_pieces(parser)
                parser.parse_punctuation(")")
                return axis, UseFactor(name, pieces)
            return axis, UseFactor(name)

        with parser.in_angle_brackets():
            mesh = parser.parse_symbol_name().data
            parser.parse_punctuation(",")
            choices = parser.parse_comma_separated_list(parser.Delimiter.BRACES, parse_choice)
        return mesh, tuple(choices)

    def print_parameter(self, printer: Printer) -> None:
        def text(choice: Choice) -> str:
            match choice:
                case Replicate():
                    return "_"
                case UsePartial(index):
                    return f"partial({index})"
                case UseFactor(factor, pieces):
                    return factor + (f"(pieces = {list(pieces)})" if pieces else "")

        mesh, choices = self.data
        with printer.in_angle_brackets():
            entries = ", ".join(f'"{axis}": {text(choice)}' for axis, choice in choices)
            printer.print_string(f"@{mesh}, {{{entries}}}")


@irdl_attr_definition
class ShardingAttr(Data[tuple[str, int, tuple[tuple[str, State], ...]]]):
    """What a value is along each axis: `#dist.sharding<@mesh, [{"dp"}, {"tp"}], partial = {"pp": sum}>`; axes that are
    not named replicate. Pieces follow the axis: `[{}, {"tp" [8, 8, 8]}]`, and blocks that stay whole, where those are uneven:
    `[{}, {"tp" in [3]}]` is a dim of three heads over two devices."""

    name = "dist.sharding"

    @staticmethod
    def of(mesh: str, rank: int, states: Mapping[str, State]) -> ShardingAttr:
        return ShardingAttr((mesh, rank, tuple((a, s) for a, s in states.items() if s != REPLICATED)))

    @property
    def states(self) -> dict[str, State]:
        return dict(self.data[2])

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[str, int, tuple[tuple[str, State], ...]]:
        states: list[tuple[str, State]] = []
        dim = -1

        def parse_axis() -> None:
            axis = parser.parse_str_literal()
            pieces = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            blocks: list[int] = []
            if parser.parse_optional_keyword("in"):
                blocks = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            states.append((axis, Sharded(dim, tuple(pieces or ()), tuple(blocks))))

        def parse_dim() -> None:
            nonlocal dim
            dim += 1
            parser.parse_comma_separated_list(parser.Delimiter.BRACES, parse_axis)

        def parse_partial() -> None:
            axis = parser.parse_str_literal()
            parser.parse_punctuation(":")
            states.append((axis, Partial(parser.parse_str_enum(Reduction))))

        with parser.in_angle_brackets():
            mesh = parser.parse_symbol_name().data
            parser.parse_punctuation(",")
            parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parse_dim)
            if parser.parse_optional_punctuation(","):
                parser.parse_keyword("partial")
                parser.parse_punctuation("=")
                parser.parse_comma_separated_list(parser.Delimiter.BRACES, parse_partial)
        return mesh, dim + 1, tuple(states)

    def print_parameter(self, printer: Printer) -> None:
        mesh, rank, states = self.data

        def axis_text(axis: str, state: Sharded) -> str:
            pieces = f" {list(state.pieces)}" if len(state.pieces) > 1 else ""
            return f'"{axis}"' + pieces + (f" in {list(state.blocks)}" if state.blocks else "")

        dims = [
            "{" + ", ".join(axis_text(a, s) for a, s in states if isinstance(s, Sharded) and s.dim == d) + "}"
            for d in range(rank)
        ]
        partials = [f'"{a}": {s.reduction}' for a, s in states if isinstance(s, Partial)]
        with printer.in_angle_brackets():
            suffix = f", partial = {{{', '.join(partials)}}}" if partials else ""
            printer.print_string(f"@{mesh}, [{', '.join(dims)}]{suffix}")
