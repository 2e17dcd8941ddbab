"""The text of a rule. In goes `#dist.rule<...>`; out comes a `Rule`, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from distir.dialects.reductions import Reduction
from distir.dialects.sharding.rules import (
    NO_HALO,
    Combine,
    Gather,
    Halo,
    Identity,
    InputDim,
    Offset,
    Outside,
    OutsideKind,
    PartialRule,
    Reduce,
    Rule,
    Shift,
)


def _parse_pieces(parser: AttrParser) -> tuple[int, ...]:
    parser.parse_punctuation("=")
    return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer))


@dataclass
class _Options:
    """What may stand in the parentheses of a dim or combine."""

    halo: Halo = NO_HALO
    pieces: tuple[int, ...] = ()
    outer: tuple[str, ...] = ()
    stride: int = 1
    filled: bool = False


def parse_pieces(parser: AttrParser) -> tuple[int, ...]:
    """`pieces = [1, 1]`, until the closing parenthesis."""
    return _parse_options(parser, "`pieces`").pieces


def _parse_halo(parser: AttrParser) -> Halo:
    both = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
    if both is None:
        width = parser.parse_integer()
        return width, width
    if len(both) != 2:
        parser.raise_error(f"expected a halo to the left and to the right, got {both}")
    return both[0], both[1]


def _parse_options(parser: AttrParser, expected: str) -> _Options:
    """The options named in `expected`, in any order."""
    found = _Options()
    while True:
        keyword = parser.parse_identifier(expected)
        if f"`{keyword}`" not in expected:
            parser.raise_error(f"expected {expected}, got `{keyword}`")
        if keyword == "pieces":
            found.pieces = _parse_pieces(parser)
        else:
            parser.parse_punctuation("=")
        if keyword == "halo":
            found.halo = _parse_halo(parser)
        elif keyword == "stride":
            found.stride = parser.parse_integer()
        elif keyword == "outer":
            found.outer = _parse_product(parser, "a factor")
        elif keyword == "fill":
            parser.parse_keyword("zero")
            found.filled = True
        if parser.parse_optional_punctuation(",") is None:
            return found


def _format_options(
    halo: Halo, pieces: Sequence[int], outer: Sequence[str] = (), stride: int = 1, filled: bool = False
) -> list[str]:
    texts = [f"halo = {halo[0] if halo[0] == halo[1] else list(halo)}"] if halo != NO_HALO else []
    texts += ["fill = zero"] if filled else []
    texts += [f"stride = {stride}"] if stride != 1 else []
    texts += [f"pieces = {list(pieces)}"] if pieces else []
    return texts + ([f"outer = {' * '.join(outer)}"] if outer else [])


def _parse_product(parser: AttrParser, expected: str) -> tuple[str, ...]:
    """`S1 * S2`: factors, outermost first."""
    factors = [parser.parse_identifier(expected)]
    while parser.parse_optional_punctuation("*"):
        factors.append(parser.parse_identifier("a factor"))
    return tuple(factors)


def _parse_input_dim(parser: AttrParser) -> InputDim:
    factor, *inner = _parse_product(parser, "a factor such as S1, or _")
    if factor == "_" and not inner:
        return InputDim()
    if not inner and parser.parse_optional_punctuation("("):
        options = _parse_options(parser, "`halo`, `fill`, `stride` or `pieces`")
        parser.parse_punctuation(")")
        return InputDim(factor, options.halo, options.pieces, stride=options.stride, filled=options.filled)
    return InputDim(factor, inner=tuple(inner))


def _format_input_dim(dim: InputDim) -> str:
    options = _format_options(dim.halo, dim.pieces, stride=dim.stride, filled=dim.filled)
    return (" * ".join(dim.factors) or "_") + (f"({', '.join(options)})" if options else "")


def _parse_combine(parser: AttrParser) -> Combine:
    kind = parser.parse_identifier("gather, reduce or identity")
    if kind == "identity":
        return Identity()
    if kind not in ("gather", "reduce"):
        parser.raise_error(f"expected gather, reduce or identity, got {kind}")
    parser.parse_punctuation("(")
    if kind == "reduce":
        combine: Combine = Reduce(parser.parse_str_enum(Reduction))
    else:
        dim = parser.parse_integer()
        combine = Gather(dim)
        if parser.parse_optional_punctuation(","):
            options = _parse_options(parser, "`halo`, `stride`, `pieces` or `outer`")
            combine = Gather(dim, options.halo, options.pieces, options.outer, options.stride)
    parser.parse_punctuation(")")
    return combine


def _format_combine(combine: Combine) -> str:
    match combine:
        case Identity():
            return "identity"
        case Reduce(reduction):
            return f"reduce({reduction})"
        case Gather(dim, halo, pieces, outer, stride):
            return f"gather({', '.join([str(dim), *_format_options(halo, pieces, outer, stride)])})"


def _parse_partial(parser: AttrParser) -> PartialRule:
    reduction = parser.parse_str_enum(Reduction)
    parser.parse_punctuation(":")
    factor = parser.parse_optional_identifier()
    if factor is not None:
        parser.parse_punctuation(",")

    def parse_integers() -> tuple[int, ...]:
        values = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_integer)
        return (parser.parse_integer(),) if values is None else tuple(values)

    operands = parse_integers()
    parser.parse_punctuation("->")
    return PartialRule(reduction, operands, parse_integers(), factor)


def _format_partial(rule: PartialRule) -> str:
    def integers(values: tuple[int, ...]) -> str:
        return str(values[0]) if len(values) == 1 else f"({', '.join(map(str, values))})"

    factor = f"{rule.factor}, " if rule.factor else ""
    return f"{rule.reduction}: {factor}{integers(rule.operands)} -> {integers(rule.results)}"


def _parse_entry(parser: AttrParser) -> tuple[str, int]:
    """`shape[1]`: an entry of a property or operand."""
    name = parser.parse_identifier("an attribute or operand name")
    with parser.in_square_brackets():
        return name, parser.parse_integer()


def _parse_offset(parser: AttrParser) -> tuple[str, Offset]:
    factor = parser.parse_identifier("a factor")
    if not parser.parse_optional_punctuation("("):
        return factor, Outside()
    kind = parser.parse_identifier("zero, kept, ignored, raises or lowers")
    parser.parse_punctuation("=")
    if kind in ("raises", "lowers"):
        offset: Offset = Shift(*_parse_entry(parser), falls=kind == "lowers")
    elif kind in ("zero", "kept", "ignored"):
        offset = Outside(OutsideKind(kind), parser.parse_integer())
    else:
        parser.raise_error(f"expected zero, kept, ignored, raises or lowers, got {kind}")
    parser.parse_punctuation(")")
    return factor, offset


def _format_offset(factor: str, offset: Offset) -> str:
    match offset:
        case Shift(name, position, falls):
            return f"{factor}({'lowers' if falls else 'raises'} = {name}[{position}])"
        case Outside():
            return factor if offset == Outside() else f"{factor}({offset.kind} = {offset.number})"


@irdl_attr_definition
class RuleAttr(Data[Rule]):
    """`#dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, found = exact>`.

    Lifecycle: `shardcombine-annotate` adds it, the search reads it, `apply-sharding` removes it."""

    name = "dist.rule"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Rule:
        def parse_dims() -> tuple[InputDim, ...]:
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_input_dim(parser)))

        def parse_entry() -> tuple[str, tuple[Combine, ...]]:
            factor = parser.parse_identifier("a factor")
            parser.parse_punctuation(":")
            combines = parser.parse_optional_comma_separated_list(
                parser.Delimiter.SQUARE, lambda: _parse_combine(parser)
            )
            return factor, tuple(combines) if combines is not None else (_parse_combine(parser),)

        def parse_size() -> tuple[tuple[str, int], tuple[str, ...]]:
            slot = _parse_entry(parser)
            parser.parse_punctuation(":")
            return slot, _parse_product(parser, "a factor")

        sizes: dict[tuple[str, int], tuple[str, ...]] = {}
        partials: tuple[PartialRule, ...] = ()
        offsets: dict[str, Offset] = {}
        found = "exact"
        with parser.in_angle_brackets():
            inputs: list[tuple[InputDim, ...]] = []
            if parser.parse_optional_punctuation("->") is None:
                inputs = parser.parse_comma_separated_list(parser.Delimiter.NONE, parse_dims)
                parser.parse_punctuation("->")
            combines = dict(parser.parse_comma_separated_list(parser.Delimiter.BRACES, parse_entry))
            while parser.parse_optional_punctuation(","):
                key = parser.parse_identifier("sizes, partial, offset or found")
                parser.parse_punctuation("=")
                if key == "sizes":
                    sizes = dict(parser.parse_comma_separated_list(parser.Delimiter.BRACES, parse_size))
                elif key == "partial":
                    partials = tuple(
                        parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: _parse_partial(parser))
                    )
                elif key == "offset":
                    offsets |= [_parse_offset(parser)]
                elif key == "found":
                    found = parser.parse_identifier("exact, probed or unknown")
                else:
                    parser.raise_error(f"expected sizes, partial, offset or found, got {key}")
        return Rule(tuple(inputs), combines, sizes, partials, offsets, found)

    def print_parameter(self, printer: Printer) -> None:
        rule = self.data
        inputs = ", ".join(f"[{', '.join(map(_format_input_dim, dims))}]" for dims in rule.inputs)

        def combine_text(combines: tuple[Combine, ...]) -> str:
            texts = [_format_combine(c) for c in combines]
            return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"

        parts = ["{" + ", ".join(f"{f}: {combine_text(c)}" for f, c in rule.combines.items()) + "}"]
        if rule.sizes:
            parts.append(
                "sizes = {" + ", ".join(f"{n}[{i}]: {' * '.join(f)}" for (n, i), f in rule.sizes.items()) + "}"
            )
        if rule.partials:
            parts.append(f"partial = [{', '.join(map(_format_partial, rule.partials))}]")
        parts += [f"offset = {_format_offset(factor, offset)}" for factor, offset in rule.offsets.items()]
        parts.append(f"found = {rule.found}")
        with printer.in_angle_brackets():
            printer.print_string(f"{inputs} -> {', '.join(parts)}" if inputs else f"-> {', '.join(parts)}")

    def verify(self) -> None:
        rule = self.data
        if rule.found not in ("exact", "probed", "unknown"):
            raise VerifyException(f"expected found = exact, probed or unknown, got {rule.found}")
        carried = [*(d.factors for dims in rule.inputs for d in dims), *rule.sizes.values()]
        named = {factor for factors in carried for factor in factors}
        for factor, combines in rule.combines.items():
            if any(d.stride < 1 for dims in rule.inputs for d in dims) or any(
                isinstance(c, Gather) and c.stride < 1 for c in combines
            ):
                raise VerifyException("expected strides of at least 1")
            if factor not in named and rule.inputs:  # what has no operands states its results, dim by dim
                raise VerifyException(f"factor {factor} is combined but no input dim or size carries it")
            for outer in (o for c in combines if isinstance(c, Gather) for o in c.outer):
                if outer not in rule.combines or outer == factor:
                    raise VerifyException(f"factor {factor} cannot lie inside {outer}: expected another factor")
        if len({len(c) for c in rule.combines.values()}) > 1:
            raise VerifyException("expected one combine per result for every factor")
