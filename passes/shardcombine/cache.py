"""Rules kept between runs: one JSON file of rules in their textual form, written atomically, ignored when damaged.

The file's name carries a digest of what rules depend on: library versions, and the sources of discovery and of the
interpreters."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from io import StringIO
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.parser import Parser
from xdsl.printer import Printer

from distir.dialects.dist import Dist
from distir.dialects.sharding import Rule, RuleAttr

_LIBRARIES = ("xdsl", "numpy", "onnx", "torch")
_ROOT = Path(__file__).parents[2]
_SOURCES = ("passes/shardcombine", "interpreters", "dialects")


def cache_directory() -> Path:
    """`$DISTIR_CACHE_DIR`, else `distir` in `$XDG_CACHE_HOME`, else `~/.cache/distir`."""
    if own := os.environ.get("DISTIR_CACHE_DIR"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "distir"


@cache
def _digest() -> str:
    """What rules depend on besides the op."""
    digest = hashlib.sha256()
    for library in _LIBRARIES:
        try:
            digest.update(f"{library} {metadata.version(library)}\n".encode())
        except metadata.PackageNotFoundError:
            digest.update(f"no {library}\n".encode())
    for folder in _SOURCES:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def rule_text(rule: Rule) -> str:
    out = StringIO()
    Printer(out).print_attribute(RuleAttr(rule))
    return out.getvalue()


def parse_rule(text: str) -> Rule:
    """Raises an exception for anything but a rule."""
    context = Context()
    context.load_dialect(Dist)
    attribute = Parser(context, text).parse_attribute()
    if not isinstance(attribute, RuleAttr):
        raise ValueError("not a rule")
    attribute.verify()
    return attribute.data


@dataclass
class RuleCache:
    """Rules by text of op. `path` is None for a cache that lives in memory only."""

    path: Path | None
    _rules: dict[str, Rule] = field(default_factory=dict[str, Rule])
    _texts: dict[str, str] = field(default_factory=dict[str, str])
    _new: dict[str, str] = field(default_factory=dict[str, str])

    @staticmethod
    def in_memory() -> RuleCache:
        return RuleCache(None)

    @staticmethod
    def on_disk() -> RuleCache:
        """The user's cache; empty if it cannot be read."""
        path = cache_directory() / f"rules-{_digest()}.json"
        return RuleCache(path, _texts=_read(path))

    @staticmethod
    def _key(op_text: str) -> str:
        return f"{op_text.removeprefix('class: ').split(' ', 1)[0]} {hashlib.sha256(op_text.encode()).hexdigest()[:32]}"

    def get(self, op_text: str) -> Rule | None:
        key = self._key(op_text)
        if key not in self._rules and key in self._texts:
            try:
                self._rules[key] = parse_rule(self._texts[key])
            except Exception:  # whatever stands in a damaged entry, the rule is discovered anew
                del self._texts[key]
        return self._rules.get(key)

    def put(self, op_text: str, rule: Rule) -> None:
        key = self._key(op_text)
        self._rules[key] = rule
        self._new[key] = rule_text(rule)

    def save(self) -> None:
        """Adds what is new to the file. A directory that cannot be written costs only the time saved."""
        if self.path is None or not self._new:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            texts = {**_read(self.path), **self._new}
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".rules-")
            try:
                with os.fdopen(handle, "w") as file:
                    json.dump(texts, file, indent=0, sort_keys=True)
                os.replace(temporary, self.path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError:
            return
        self._new.clear()


def _read(path: Path) -> dict[str, str]:
    try:
        texts: Any = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(texts, dict):
        return {}
    return {key: text for key, text in texts.items() if isinstance(key, str) and isinstance(text, str)}
