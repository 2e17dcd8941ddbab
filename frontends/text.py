"""Parses program text. In goes any text at all; out comes its verified module, or, in bounded time, an error that says what is wrong."""

import re
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import DiagnosticException, ParseError, UnregisteredConstructException
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRToken, MLIRTokenKind, StringLiteral

from distir.dialects.errors import DistirError
from distir.frontends.program_parser import ProgramParser

_STRING = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')
"""xDSL's pattern of a string literal with quantifiers that do not backtrack."""


def bound_lexer() -> None:
    """Mend how xDSL 0.74 reads string literals: one that is not closed takes time exponential in its length, and one
    with escapes of UTF-8 (as it prints every name that is not ASCII) is read as bytes, not text."""
    lexer: Any = MLIRLexer
    lexer._unescaped_characters_regex = _STRING
    lexer._lex_string_literal = _lex_string_literal


_lex_bytes_or_text: Any = cast(Any, MLIRLexer)._lex_string_literal


def _lex_string_literal(lexer: MLIRLexer, start: int) -> MLIRToken:
    token: MLIRToken = _lex_bytes_or_text(lexer, start)
    if token.kind is not MLIRTokenKind.BYTES_LIT:
        return token
    try:
        cast(StringLiteral, token.span).string_contents
    except UnicodeDecodeError:
        return token
    return MLIRToken(MLIRTokenKind.STRING_LIT, token.span)


def parse_program(context: Context, text: str, name: str) -> ModuleOp:
    """The module of this text, verified. Raises a diagnostic of xDSL, or DistirError where its parser has none."""
    bound_lexer()
    try:
        module = ProgramParser(context, text, name).parse_verified()
    except (DiagnosticException, DistirError, ParseError, UnregisteredConstructException):
        raise
    except RecursionError as error:
        raise DistirError(f"{name}: not a program: its text is nested too deeply") from error
    except MemoryError as error:
        raise DistirError(f"{name}: not a program that fits in memory: is a shape in it too large?") from error
    except Exception as error:  # the parser of xDSL 0.74 has no diagnostic for some texts
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise DistirError(f"{name}: not a program: {type(error).__name__}: {reason}") from error
    if 'loc("' in text:
        from distir.interpreters.model_names import names_from_locations

        names_from_locations(module)
    return module
