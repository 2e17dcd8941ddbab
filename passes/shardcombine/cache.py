"""Rules kept between runs: texts of ops go in and rules come out, from one JSON file that is written atomically.

The file's name carries a digest of what all rules depend on (library versions, the sources of discovery and of the interpreters); an
entry's key has the op, and what its dialect means: the sources and versions of the packages where its operators and their meaning are. An
entry ends in a digest of its key and its rule, so that one that was changed or torn is not believed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, metadata
from io import StringIO
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.printer import Printer

from distir.dialects.dist import Dist
from distir.dialects.sharding import Rule, RuleAttr
from distir.interpreters.operator_dialects import MEANINGS

_LIBRARIES = ("xdsl", "numpy", "onnx", "torch", "jax", "jaxlib", "ml_dtypes")
_ROOT = Path(__file__).parents[2]
_OWN = __name__.partition(".")[0]
_SOURCES = ("passes/shardcombine", "interpreters", "dialects")
NO_CACHE = "DISTIR_NO_CACHE"
"""The variable of the environment that, set, keeps rules in memory only."""
_PREFIX = "rules-"


def cache_directory() -> Path:
    """`$DISTIR_CACHE_DIR`, else the user's folder of the system, such as `~/.cache/distir`."""
    from platformdirs import user_cache_path

    own = os.environ.get("DISTIR_CACHE_DIR")
    return Path(own) if own else user_cache_path("distir", appauthor=False)


def cache_files() -> list[Path]:
    """The files of rules in the user's cache, of whatever version."""
    return sorted(cache_directory().glob(f"{_PREFIX}*.json"))


def current_file() -> Path:
    """The file in which this version, with the libraries that there are, keeps rules."""
    return cache_directory() / f"{_PREFIX}{version_digest()}.json"


@cache
def version_digest() -> str:
    """What all rules depend on besides the op and its dialect."""
    digest = hashlib.sha256(f"python {sys.version_info[:3]}\n".encode())
    for library in _LIBRARIES:
        digest.update(f"{library} {_version(library)}\n".encode())
    for folder in _SOURCES:
        _add_sources(digest, _ROOT / folder)
    return digest.hexdigest()[:16]


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "none"


def _add_sources(digest: Any, folder: Path) -> None:
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())


def meaning_digest(op: Operation) -> str | None:
    """A digest of what an op's dialect means: where its operators and their meaning are from outside, of the sources and versions there;
    None where there are none to be read."""
    meaning = MEANINGS.get(op.dialect_name())
    places = () if meaning is None else tuple(sorted({p.partition(":")[0] for p in meaning if isinstance(p, str)}))
    return _digest_of(str(meaning), tuple(dict.fromkeys((*places, type(op).__module__))))


@cache
def _digest_of(meaning: str, modules: tuple[str, ...]) -> str | None:
    digest = hashlib.sha256(meaning.encode())
    for name in modules:
        package = name.partition(".")[0]
        if package == _OWN:
            continue
        try:
            file, root = import_module(name).__file__, import_module(package).__file__
        except Exception:
            return None
        if file is None:
            return None
        digest.update(f"{package} {_version(package)}\n".encode())
        digest.update(Path(file).read_bytes())
        if root is not None and Path(root).name == "__init__.py":
            _add_sources(digest, Path(root).parent)
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


def fits(rule: Rule, op: Operation) -> bool:
    """Whether a rule is one of an op with these operands and so many results."""
    ranks = [value.type.get_num_dims() if isinstance(value.type, TensorType) else 0 for value in op.operands]
    counts = {len(combines) for combines in rule.combines.values()}
    return [len(dims) for dims in rule.inputs] == ranks and counts <= {len(op.results)}


@dataclass
class RuleCache:
    """Rules by text of op. `path` is None for a cache that lives in memory only."""

    path: Path | None
    new: dict[str, str] = field(default_factory=dict[str, str])
    """Entries that the file has not got yet."""
    _rules: dict[str, Rule] = field(default_factory=dict[str, Rule])
    _entries: dict[str, str] = field(default_factory=dict[str, str])

    @staticmethod
    def in_memory() -> RuleCache:
        return RuleCache(None)

    @staticmethod
    def on_disk() -> RuleCache:
        """The user's cache; empty if it cannot be read, in memory if the user wants none."""
        if os.environ.get(NO_CACHE):
            return RuleCache.in_memory()
        return RuleCache(current_file(), _entries=read_entries(current_file()))

    def key(self, op: Operation, text: str) -> str | None:
        """The key of an op by its text; None if it can only be kept in memory, by the text."""
        digest = meaning_digest(op)
        return None if digest is None else f"{op.name} {hashlib.sha256(f'{digest} {text}'.encode()).hexdigest()[:32]}"

    def get(self, op: Operation, text: str) -> Rule | None:
        key = self.key(op, text) or text
        if key not in self._rules and key in self._entries:
            rule = _believed(key, self._entries[key])
            if rule is None:  # a damaged entry: the rule is discovered anew
                del self._entries[key]
            else:
                self._rules[key] = rule
        return self._rules.get(key)

    def put(self, op: Operation, text: str, rule: Rule) -> None:
        """Keeps a rule; one of an op that did not run is not kept."""
        if rule.found == "unknown":
            return
        key = self.key(op, text)
        self._rules[key or text] = rule
        if key is not None:
            written = rule_text(rule)
            self.new[key] = f"{written} {_sum(key, written)}"

    def add(self, entries: Mapping[str, str]) -> None:
        """Keeps entries that another process has made."""
        self.new |= entries
        self._entries |= entries

    def save(self) -> None:
        """Adds what is new to the file. A directory that cannot be written costs only the time saved."""
        if self.path is None or not self.new:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            entries = {**read_entries(self.path), **self.new}
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".rules-")
            try:
                with os.fdopen(handle, "w") as file:
                    json.dump(entries, file, indent=0, sort_keys=True)
                os.replace(temporary, self.path)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError:
            return
        self.new.clear()


def _sum(key: str, text: str) -> str:
    return hashlib.sha256(f"{key}\0{text}".encode()).hexdigest()[:32]


def _believed(key: str, entry: str) -> Rule | None:
    """The rule of an entry; None for one that is not as it was written."""
    text, _, digest = entry.rpartition(" ")
    if digest != _sum(key, text):
        return None
    try:
        return parse_rule(text)
    except Exception:
        return None


def read_entries(path: Path) -> dict[str, str]:
    """The entries of a file by key; none if it cannot be read or is no such file."""
    try:
        entries: Any = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(entries, dict):
        return {}
    return {key: entry for key, entry in entries.items() if isinstance(key, str) and isinstance(entry, str)}
