"""What other packages add to distir. In go the entry points `distir.plugins` of installed packages, each a function that calls the `register_*`
functions below; out come the registries, in which commands, workers and Python look things up by name.

A registry loads all plug-ins when it is first read, in whatever process that is, so no command and no worker has to. What is registered is an object, or its
place as `package.module:name`, which is imported when it is first asked for: registering imports nothing, and is the way for
all that `distir --help` does not need. `docs/extending.md` shows each function with a tested example; `distir plugins` lists what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import extract_tb
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from distir.dialects.errors import DistirError, reason_of

if TYPE_CHECKING:
    from xdsl.interpreter import InterpreterFunctions

GROUP = "distir.plugins"
"""The group of entry points."""

T = TypeVar("T")


class Registered(NamedTuple):
    """One thing that a plug-in adds."""

    plugin: str
    kind: str
    name: str


_tables: dict[str, dict[str, Any]] = {}
"""What is registered, by kind and name: shared by the registry of that kind, which its room makes, and the function that adds to it."""
_registered: list[Registered] = []
_plugin = ""
"""The plug-in that is being loaded."""
_loaded = False


class Registry(MutableMapping[str, T], Generic[T]):
    """Things of one kind by name: distir's own, and those of plug-ins."""

    def __init__(
        self,
        kind: str,
        built_in: Mapping[str, T | str] = MappingProxyType({}),
        *,
        instance_of: type | None = None,
        subclass_of: type | None = None,
    ) -> None:
        """`instance_of`, `subclass_of`: what each thing must be; its `name`, if it has one, is then the one that it is registered under."""
        self.kind, self._instance_of, self._subclass_of = kind, instance_of, subclass_of
        self._places = _tables.setdefault(kind, {})
        self._found: dict[str, T] = {}
        if twice := sorted(built_in.keys() & self._places.keys()):
            raise _second(kind, twice[0], _owner(kind, twice[0]))
        self._places |= built_in

    def __getitem__(self, name: str) -> T:
        """The thing of this name; KeyError if there is none."""
        if (found := self._found.get(name)) is not None:
            return found
        load_plugins()
        found = _resolved(self.kind, name, self._places[name])
        if wrong := self._wrong(name, found):
            raise DistirError(f"the {self.kind} {name} is registered as {_shown(self._places[name])}, {wrong}")
        self._found[name] = found
        return found

    def _wrong(self, name: str, thing: Any) -> str:
        """Why a thing cannot be one of this kind; empty where it can."""
        if self._instance_of is not None and not isinstance(thing, self._instance_of):
            return f"which is no {self._instance_of.__name__}"
        if self._subclass_of is not None:
            if wrong := _no_subclass(thing, self._subclass_of):
                return wrong
        elif self._instance_of is None:
            return ""
        own = getattr(thing, "name", name)
        return f"whose name is {own}" if isinstance(own, str) and own != name else ""

    def find(self, name: str) -> T:
        """The thing of this name; DistirError, with the nearest names, if there is none."""
        if name in self:
            return self[name]
        raise DistirError(f"unknown {self.kind} {name}: {expected(name, self)}")

    def factory(self, name: str) -> Callable[[], T]:
        """What gives the thing when it is called."""
        return lambda: self[name]

    def place(self, name: str) -> object:
        """The thing, or where it is, as it was registered."""
        return self._places[name]

    def __contains__(self, name: object) -> bool:
        load_plugins()
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(list(self._places))

    def __len__(self) -> int:
        load_plugins()
        return len(self._places)

    def __setitem__(self, name: str, thing: T | str) -> None:
        self._places[name] = thing
        self._found.pop(name, None)

    def __delitem__(self, name: str) -> None:
        del self._places[name]
        self._found.pop(name, None)


def expected(name: str, names: Iterable[str], also: str = "") -> str:
    """What to say of a name that is none of these: all, what else it may be, and the nearest."""
    known = sorted(names)
    listed = [*known, *filter(None, [also])]
    if not listed:
        return "there is none"
    near = get_close_matches(name, known, 1, 0.6)
    all_but_last = f"{', '.join(listed[:-1])} or " if len(listed) > 1 else ""
    return f"expected {all_but_last}{listed[-1]}" + (f" (did you mean {near[0]}?)" if near else "")


def _resolved(kind: str, name: str, thing: Any) -> Any:
    """The object that is registered: of a place, what is there. Raises DistirError where nothing is."""
    if not isinstance(thing, str):
        return thing
    module, _, path = thing.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        package = module.partition(".")[0]
        if package == __name__.partition(".")[0]:
            raise
        raise DistirError(
            f"the {kind} {name} is registered as {thing}, which cannot be imported: {told(error, package)}"
        ) from error
    return found


def told(error: BaseException, *packages: str) -> str:
    """What an error says. Where code of a plug-in, or of these packages, raised it: with its kind and the line there."""
    if isinstance(error, DistirError | ImportError):
        return reason_of(error)
    place = _place_in(error, {*packages, *map(_root, entry_points(group=GROUP))})
    return f"{type(error).__name__}: {error} ({place})" if place else reason_of(error)


def told_in_a_line(error: BaseException) -> str:
    """What an error says, in one line, with its kind where it is none of distir's."""
    said = " ".join(told(error).split())
    return (
        said if isinstance(error, DistirError) or said.startswith(kind := f"{type(error).__name__}: ") else kind + said
    )


def fault_of_plugin(error: BaseException) -> str:
    """What to say of an error that nothing expected, if it passed through the code of a plug-in; empty if it did not, and is distir's own."""
    for point in entry_points(group=GROUP):
        if place := _place_in(error, {_root(point)}):
            return f"the plug-in {point.name} ({_package(point)}) failed: {type(error).__name__}: {error} ({place})"
    return ""


def of_plugin(place: str) -> str:
    """` of the plug-in NAME`, if a module, or a place in one, is in the package of a plug-in; else empty."""
    root = place.partition(":")[0].partition(".")[0]
    return next((f" of the plug-in {p.name}" for p in entry_points(group=GROUP) if _root(p) == root), "")


def _root(point: EntryPoint) -> str:
    """The package that a plug-in is in."""
    return point.value.partition(":")[0].partition(".")[0]


def _place_in(error: BaseException, packages: Collection[str]) -> str:
    """The last line of code in these packages that an error passed through; empty if none."""
    places = [(Path(frame.filename), frame.lineno) for frame in extract_tb(error.__traceback__)]
    found = [f"{path.name}:{line}" for path, line in places if {*packages} & {path.stem, *path.parent.parts}]
    return found[-1] if found else ""


def _no_subclass(thing: Any, base: type) -> str:
    """Why a thing is no subclass of which objects can be made; empty where it is one."""
    if not isinstance(thing, type) or not issubclass(thing, base):
        return f"which is no subclass of {base.__name__}"
    lacking = sorted(getattr(thing, "__abstractmethods__", ()))
    return f"which lacks {', '.join(lacking)}" if lacking else ""


def _shown(thing: Any) -> str:
    """Something that is registered, as its place."""
    return thing if isinstance(thing, str) else getattr(thing, "__qualname__", type(thing).__qualname__)


def _add(kind: str, name: str, thing: Any) -> None:
    if name in _tables.get(kind, {}):
        raise _second(kind, name, _plugin)

    _tables.setdefault(kind, {})[name] = thing
    _registered.append(Registered(_plugin, kind, name))


def _second(kind: str, name: str, by: str) -> DistirError:
    who = f"the plug-in {by}" if by else "this program"
    return DistirError(f"the {kind} {name}, which {who} registers, is there already: choose another name")


def _owner(kind: str, name: str) -> str:
    """The plug-in that registered it; empty if that was none."""
    return next((each.plugin for each in _registered if (each.kind, each.name) == (kind, name)), "")


def load_plugins() -> None:
    """Calls the function of every entry point, once in a process. Raises DistirError for one that fails, which names it."""
    global _loaded, _plugin
    if _loaded:
        return
    _loaded = True  # a plug-in may read a registry while it is loaded: it sees what is there so far
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        _plugin = point.name
        try:
            point.load()()
        except Exception as error:
            _forget()
            raise DistirError(
                f"the plug-in {point.name} ({_package(point)}) cannot be loaded: {told(error)}"
            ) from error
        finally:
            _plugin = ""


def _forget() -> None:
    """As before any plug-in was loaded: the next who asks is told of the same failure."""
    global _loaded
    _loaded = False
    for _, kind, name in _registered:
        del _tables[kind][name]
    _registered.clear()


def plugins() -> list[tuple[str, str, list[Registered]]]:
    """The plug-ins of this installation: name, package, and what each registered."""
    load_plugins()
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return [(p.name, _package(p), [each for each in _registered if each.plugin == p.name]) for p in points]


def _package(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"{point.dist.name} {point.dist.version}"


# --- what a plug-in calls ---------------------------------------------------------------------------------------------


def register_dialect(name: str, dialect: object | str) -> None:
    """A dialect: an xDSL `Dialect`. Programs with its operations and attributes parse everywhere, in `xdsl-opt` too."""
    _add("dialect", name, dialect)


def register_meaning(dialect: str, meaning: object) -> None:
    """What the operators of a dialect mean: a `Meaning`, whose fields are places of functions over a whole dialect (arrays, types, work).
    Rules of sharding are discovered from it."""
    _add("meaning of the dialect", dialect, meaning)


DOMAINS = {
    "reference": "values are arrays: what `verify` and `run --check` execute",
    "mixed": "values are types, or arrays where they are known",
    "work": "arguments are operand types, the value is the operation's `Work`: its kind, flops and bytes",
    "costs": "arguments are the machine's devices that take part, the value is `(kind, seconds)`; the interpreter has the `model`",
    "placement": "values are devices and streams",
    "proof": "values are shards of the sequential program's values",
}
"""The domains that operations join by `@impl`, and what a value is in each."""


def register_implementations(domain: str, functions: type[InterpreterFunctions] | str) -> None:
    """`@impl`s of operations in one of `DOMAINS`: a class of xDSL's `InterpreterFunctions`, made without arguments."""
    if domain not in DOMAINS:
        raise DistirError(f"unknown domain {domain}: {expected(domain, DOMAINS)}")
    place = functions if isinstance(functions, str) else f"{functions.__module__}:{functions.__qualname__}"
    _add(f"@impls of the domain {domain}", place, functions)


def implementations(domain: str) -> list[InterpreterFunctions]:
    """What plug-ins registered for a domain, made anew."""
    load_plugins()
    kind = f"@impls of the domain {domain}"
    from xdsl.interpreter import InterpreterFunctions

    found: list[InterpreterFunctions] = []
    for name, thing in _tables.get(kind, {}).items():
        made = _resolved(kind, name, thing)
        if wrong := _no_subclass(made, InterpreterFunctions):
            raise DistirError(f"{name}, registered as {kind}, is none: {wrong}")
        found.append(cast("type[InterpreterFunctions]", made)())
    return found


def register_lowering(operation: str, lowering: Callable[..., Any] | str) -> None:
    """What one rank does of a communication operation, by the operation's name: `f(op, view) -> Operation` of the `rank` dialect
    (`distir.passes.project_to_rank`)."""
    _add("lowering to ranks", operation, lowering)


def register_kernels(dialect: str, kernels: Callable[..., Any] | str) -> None:
    """The operators of a dialect as functions of torch tensors: `f(op, types, device) -> Compute`
    (`distir.backends.torch.operators`). Without it they run by their meaning, through numpy."""
    _add("torch kernels of the dialect", dialect, kernels)


def register_pass(name: str, pass_: type | str) -> None:
    """A pass: a subclass of xDSL's `ModulePass` with this name. `distir-opt -p NAME` and `xdsl-opt` run it."""
    _add("pass", name, pass_)


def register_cost_model(name: str, model: type | str) -> None:
    """A subclass of `distir.interpreters.cost_models.CostModel`: `--cost-model NAME`."""
    _add("cost model", name, model)


def register_machine(name: str, path: Path | str) -> None:
    """A machine file in the package: `--machine NAME`."""
    _add("machine", name, Path(path))


def register_kernel_backend(name: str, backend: Any) -> None:
    """What a compiler runs as one kernel, a `distir.passes.kernels.grouping.Backend`: `fuse-kernels{backend=NAME}`."""
    _add("kernel backend", name, backend)


def register_schedule(name: str, schedule: Callable[[int, int, int], Any] | str) -> None:
    """A pipeline schedule: `f(stage, stages, microbatches)` gives the stage's tasks in order
    (`distir.passes.distribution.pipeline.tasks`)."""
    _add("schedule", name, schedule)


def register_onnx_domain(domain: str, importer: Callable[..., Any] | str) -> None:
    """A domain of operators in ONNX files: `f(node, operands) -> Operation`, for each node of the domain, an `onnx.NodeProto`."""
    _add("ONNX domain", domain, importer)


def register_frontend(extension: str, importer: Callable[..., Any] | str) -> None:
    """A kind of model file by the end of its name (`.npz`): `f(path, shapes) -> ModuleOp`, a sequential program. `shapes` binds inputs,
    by name, as `--shape` does; it may be None. Raises DistirError for an extension without its dot."""
    if not extension.startswith("."):
        raise DistirError(
            f"the frontend {extension}: expected the end of a file's name with its dot, as in .{extension}"
        )
    _add("frontend", extension, importer)
