"""What `distir-opt --verify-diagnostics` expects of a file. In go a chunk of text with comments such as

    // expected-error @+1 {{expected 2 devices, got 3}}
    // expected-error-re @below {{got {{[0-9]+}}}}

and the diagnostics that it gave; out comes what does not agree: a diagnostic that nothing expected, a comment that nothing met. As in MLIR, the line
is the comment's own, or `@+N`, `@-N`, `@above`, `@below` from it, or `@unknown`; the text is part of the message."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from xdsl.ir import Operation
from xdsl.utils.exceptions import ParseError

from distir.dialects.errors import DistirError

ANNOTATION = re.compile(
    r"expected-(?P<kind>error|warning|remark|note)(?P<regex>-re)?\s*(?:@(?P<line>[+-]\d+|above|below|unknown))?\s*\{\{(?P<text>.*)\}\}"
)

MEANT = re.compile(r"^\s*//\s*expected-.*\{\{")
"""What is meant to be one, whether or not it is."""


class Unexpected(DistirError):
    """Diagnostics are not those that the file expects: one line each."""


@dataclass
class Expected:
    """One comment."""

    line: int
    """The line of the file that it speaks of; 0: any."""
    at: int
    """The line that it stands on."""
    pattern: re.Pattern[str]
    text: str
    is_met: bool = False

    def fits(self, message: str, line: int | None) -> bool:
        return line in (None, self.line) or not self.line if self.pattern.search(message) else False


@dataclass
class Expectations:
    """Those of one chunk, and what came of them."""

    comments: list[Expected]
    wrong: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, text: str, offset: int) -> Expectations:
        """The comments of a chunk whose first line is number `offset` + 1 of the file."""
        found, wrong = list[Expected](), list[str]()
        for at, line in enumerate(text.splitlines(), offset + 1):
            matches = [*ANNOTATION.finditer(line)]
            if not matches and MEANT.search(line):
                wrong.append(
                    f"line {at}: expected an annotation such as 'expected-error @+1 {{{{text}}}}', got: {line.strip()}"
                )
            for match in matches:
                where = match["line"] or "+0"
                relative = {"above": -1, "below": 1, "unknown": -at}.get(where)
                target = at + (int(where) if relative is None else relative)
                found.append(Expected(target, at, _pattern(match["text"], match["regex"] is not None), match["text"]))
        return cls(found, wrong)

    def meet(self, message: str, line: int | None) -> None:
        """A diagnostic; its line is not always known."""
        for comment in self.comments:
            if not comment.is_met and comment.fits(message, line):
                comment.is_met = True
                return
        where = "" if line is None else f"line {line}: "
        near = next((c for c in self.comments if not c.is_met and c.pattern.search(message)), None)
        hint = "" if near is None else f" (the comment on line {near.at} expects it on line {near.line})"
        self.wrong.append(f"{where}unexpected error: {message}{hint}")

    def finish(self) -> list[str]:
        """What does not agree."""
        missing = [f"line {c.at}: expected error was not produced: {c.text}" for c in self.comments if not c.is_met]
        return [*self.wrong, *missing]


def _pattern(text: str, is_regex: bool) -> re.Pattern[str]:
    """The text literally; of `expected-error-re`, what is in double braces is a regular expression."""
    if not is_regex:
        return re.compile(re.escape(text))
    parts = re.split(r"\{\{(.*?)\}\}", text)
    return re.compile("".join(part if i % 2 else re.escape(part) for i, part in enumerate(parts)))


def message_of(error: Exception) -> str:
    """What a diagnostic says, without the text around it."""
    return error.msg if isinstance(error, ParseError) else str(error)


def offending_operation(error: BaseException) -> Operation | None:
    """The operation that a diagnostic of xDSL is about, which the exception itself does not say."""
    found: Operation | None = None
    trace = error.__traceback__
    while trace is not None:
        frame: FrameType = trace.tb_frame
        if frame.f_code.co_name == "emit_error":
            own: Any = frame.f_locals.get("self")
            found = own if isinstance(own, Operation) else found
        trace = trace.tb_next
    return found
