"""Program text as a module, for any text at all: what is wrong with it is said, in time."""

import re
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.utils.exceptions import DiagnosticException, ParseError, UnregisteredConstructException
from xdsl.utils.mlir_lexer import MLIRLexer

from distir.dialects.errors import DistirError

_STRING = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')
"""xDSL's pattern of a string literal with quantifiers that do not backtrack."""


def bound_lexer() -> None:
    """xDSL 0.74 takes time exponential in the length of a string literal that is not closed; after this it does not."""
    lexer: Any = MLIRLexer
    lexer._unescaped_characters_regex = _STRING


def parse_program(context: Context, text: str, name: str) -> ModuleOp:
    """The module of this text, verified. Raises a diagnostic of xDSL, or DistirError where its parser has none."""
    bound_lexer()
    try:
        module = Parser(context, text, name).parse_module()
        module.verify()
        return module
    except (DiagnosticException, DistirError, ParseError, UnregisteredConstructException):
        raise
    except RecursionError as error:
        raise DistirError(f"{name}: not a program: its text is nested too deeply") from error
    except MemoryError as error:
        raise DistirError(f"{name}: not a program that fits in memory: is a shape in it too large?") from error
    except Exception as error:  # the parser of xDSL 0.74 has no diagnostic for some texts
        reason = (str(error).strip() or "no reason given").splitlines()[0]
        raise DistirError(f"{name}: not a program: {type(error).__name__}: {reason}") from error
