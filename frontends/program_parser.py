"""xDSL's parser of programs, several times faster on text as its printer writes it: what `parse_program` reads files with.

The text of a large program says the same few things again and again: types, signatures, attribute dictionaries, constants.
Such a *phrase* is matched by a regular expression, parsed once by xDSL's parser, and recalled wherever the same text stands
again; a line of one operation in generic form whose phrases are all known is put together without its tokens being lexed.
Everything else (other forms, other spacing, forward references, every mistake) goes to xDSL's parser as it is, from the start
of the operation, so results and errors are those of xDSL.

A phrase may be recalled because its attribute is a function of its text alone: it is closed by a bracket (or is delimited in
the expression), it was parsed to exactly its end, it names no SSA value, and aliases are never redefined."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue, TypeAttribute
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser
from xdsl.traits import ConstantLike, OpTrait
from xdsl.utils.lexer import Span

from distir.dialects.value_names import is_numbered, name_values
from distir.interpreters.operator_dialects import MEANINGS

_VALUE = r"%(?:[0-9]++(?![\w$.-])|[A-Za-z$._-][\w$.-]*+)"
_TENSOR = r'tensor<[^<>(){}\[\]"\n]*+(?:<[^<>(){}\[\]"\n]*+>)?+>'
_TYPE = rf"(?:{_TENSOR}|(?:none|index|[su]?i[0-9]++|b?f[0-9]++)(?![\w$.<]))"
_TYPES = rf"\((?:{_TYPE}(?:, {_TYPE})*+)?\)"
_SIGNATURE = rf"{_TYPES} -> (?:{_TYPES}|{_TYPE})(?=\n)"
_ENTRIES = r'\{(?:[^"<>{}\n]|"[^"\\\n]*+"|<[^"<>{}\n]*+>)*+\}'
_LITERAL = r'dense<(?:[^<>"%@\n]*+|"[^"\\\n]*+")>'

TYPE = re.compile(_TENSOR, re.ASCII)
SIGNATURE = re.compile(_SIGNATURE, re.ASCII)
ENTRIES = re.compile(_ENTRIES, re.ASCII)
PROPERTIES = re.compile(rf"<{_ENTRIES}>", re.ASCII)
GENERIC = re.compile(
    rf'(?:({_VALUE}(?:, {_VALUE})*+) = )?+"([^"\\\n]++)"\(((?:{_VALUE}(?:, {_VALUE})*+)?+)\)'
    rf"(?: (<{_ENTRIES}>))?+(?: ({_ENTRIES}))?+ : ({_SIGNATURE})",
    re.ASCII,
)
NAMED = re.compile(r'[{ ]([A-Za-z_][\w$.]*+) = "([ !#-\[\]-~]*+)"[,}]', re.ASCII)
"""An entry of a dictionary that is a string without escapes; names of nodes hardly ever come twice."""

CONSTANT = re.compile(rf"({_VALUE}) = ([A-Za-z_][\w$]*+\.[\w$.]++ {_LITERAL} : {_TENSOR})(?=\n)", re.ASCII)


class ProgramParser(Parser):
    """A parser that recalls phrases."""

    def __init__(self, ctx: Context, input: str | bytes, name: str = "<unknown>") -> None:
        self._types: dict[str, TypeAttribute] = {}
        self._signatures: dict[str, FunctionType] = {}
        self._entries: dict[str, dict[str, Attribute]] = {}
        self._constants: dict[tuple[str, ...], Operation] = {}
        self._forms: set[tuple[str | None, ...]] = set()
        self._alike: set[Operation] = set()
        """Operations that are valid if an earlier one is."""
        super().__init__(ctx, input, name)
        self._content: str = self.lexer.input.content

    # --- phrases ------------------------------------------------------------------------------------------------------

    def _was_parsed(self, end: int) -> bool:
        """Whether the parser stands right after a phrase that ends here."""
        start = self.pos
        return start >= end and (start == end or self._content[end:start].isspace())

    def parse_optional_type(self) -> TypeAttribute | None:
        if (match := TYPE.match(self._content, self.pos)) is None:
            return super().parse_optional_type()
        if (known := self._types.get(match[0])) is not None:
            self._resume_from(match.end())
            return known
        type = super().parse_optional_type()
        if type is not None and self._was_parsed(match.end()):
            self._types[match[0]] = type
        return type

    def parse_function_type(self) -> FunctionType:
        match = SIGNATURE.match(self._content, self.pos)
        type = super().parse_function_type()
        if match is not None and self._was_parsed(match.end()):
            self._signatures[match[0]] = type
        return type

    def parse_optional_properties_dict(self) -> dict[str, Attribute]:
        return self._remembered(PROPERTIES, super().parse_optional_properties_dict)

    def parse_optional_dictionary_attr_dict(self) -> dict[str, Attribute]:
        return self._remembered(ENTRIES, super().parse_optional_dictionary_attr_dict)

    def _remembered(self, form: re.Pattern[str], parse: Callable[[], dict[str, Attribute]]) -> dict[str, Attribute]:
        """The entries that stand here, kept by their text if they are of this form."""
        match = form.match(self._content, self.pos)
        entries = parse()
        if match is not None and self._was_parsed(match.end()):
            self._entries[match[0]] = dict(entries)
        return entries

    # --- the whole ----------------------------------------------------------------------------------------------------

    def parse_verified(self) -> ModuleOp:
        """The module, verified: of operations of operator dialects that differ in their operands and names only, the first
        one. Raises as `parse_module` and `Operation.verify` do."""
        module = self.parse_module()
        for op in module.walk(region_first=True):
            if op in self._alike and op.next_op is not None:  # the last one of a block must be a terminator
                continue
            for region in op.regions:
                for block in region.blocks:
                    if block.is_empty:
                        block.verify()
            op.verify(verify_nested_ops=False)
        return module

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span[str]) -> None:
        """Values of the text are called as frontends call theirs: xDSL would keep a name that prints like another's."""
        super()._register_ssa_definition(name, values, span)
        if values and is_numbered(values[0]):
            name_values(values, name)

    # --- operations ---------------------------------------------------------------------------------------------------

    def parse_operation(self) -> Operation:
        start = self.pos
        if (match := GENERIC.match(self._content, start)) is not None:
            op = self._generic(match)
        elif (match := CONSTANT.match(self._content, start)) is not None:
            op = self._constant(match)
        else:
            op = None
        return super().parse_operation() if op is None else op

    def _generic(self, match: re.Match[str]) -> Operation | None:
        """The operation of this line, if all in it is known and fits together."""
        results, name, operands, properties, attributes, signature = match.groups()
        type = self._signatures.get(signature)
        if type is None:
            return None
        held = self._entries.get(properties) if properties else {}
        kept = (self._entries.get(attributes) or _strings(attributes)) if attributes else {}
        names = [each[1:] for each in results.split(", ")] if results else []
        if held is None or kept is None or (names and len(names) != len(type.outputs.data)):
            return None
        values = self._defined(operands.split(", ") if operands else [], type.inputs.data)
        op_type = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if values is None or op_type is None:
            return None
        own = len(held)
        if kept and issubclass(op_type, IRDLOperation):
            kept, held = dict(kept), dict(held)
            for each in op_type.get_irdl_definition().properties:
                if each in kept and each not in held:
                    held[each] = kept.pop(each)
        self._resume_from(match.end())
        op = op_type.create(
            operands=values,
            result_types=type.outputs.data,
            properties=held,
            attributes=kept,
            location=self.parse_optional_location(),
        )
        self._define(names, op, match.start())
        if own == len(held) and _is_verified_alone(op_type):
            form = (name, properties, signature)
            if form in self._forms:
                self._alike.add(op)
            self._forms.add(form)
        return op

    def _constant(self, match: re.Match[str]) -> Operation | None:
        """The constant of this line: as an equal line was parsed, or parsed here."""
        name, text = match.groups()
        key = (text, *self._parser_state.dialect_stack)
        if (known := self._constants.get(key)) is None:
            op = super().parse_operation()
            is_plain = op.has_trait(ConstantLike) and not (op.operands or op.regions or op.successors)
            if is_plain and self._was_parsed(match.end()):
                self._constants[key] = op
            return op
        self._resume_from(match.end())
        op = type(known).create(
            result_types=known.result_types,
            properties=known.properties,
            attributes=known.attributes,
            location=self.parse_optional_location(),
        )
        self._define([name[1:]], op, match.start())
        return op

    def _defined(self, names: list[str], types: tuple[Attribute, ...]) -> list[SSAValue] | None:
        """The values of these names, if all are defined before, with these types."""
        if len(names) != len(types):
            return None
        values: list[SSAValue] = []
        for name, type in zip(names, types, strict=True):
            known = self.ssa_values.get(name[1:])
            if not known or ((found := known[0]).type is not type and found.type != type):
                return None
            values.append(found)
        return values

    def _define(self, names: list[str], op: Operation, start: int) -> None:
        for name, result in zip(names, op.results, strict=bool(names)):
            span: Span[str] = Span(start, start + len(name) + 1, self.lexer.input)
            self._register_ssa_definition(name, (result,), span)
            start += len(name) + 3


@cache
def _is_verified_alone(op_type: type[Operation]) -> bool:
    """Whether what makes an operation of this class valid is its properties and the types of its values."""
    if not issubclass(op_type, IRDLOperation) or op_type.dialect_name() not in MEANINGS:
        return False
    definition = op_type.get_irdl_definition()
    return not definition.attributes and all(type(trait).verify is OpTrait.verify for trait in definition.traits)


def _strings(entries: str) -> dict[str, Attribute] | None:
    """The attributes of a dictionary's text, if all are strings without escapes."""
    matches = list(NAMED.finditer(entries))
    if not matches or sum(len(match[0]) for match in matches) != len(entries):
        return None
    found: dict[str, Attribute] = {match[1]: StringAttr(match[2]) for match in matches}
    return found if len(found) == len(matches) else None
