"""Problems of small programs for the tests of searches, and the programs that plans become."""

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.onnx import Onnx
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import Simulation, simulate
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.distribution.mesh import Mesh
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass
from distir.passes.sharding.prices import Prices
from distir.passes.sharding.problem import Problem, build
from distir.passes.sharding.result import Result
from distir.passes.sharding.settings import write

MACHINE = "dgx-2"
PICOSECOND = 1e-12


def problem_of(module: ModuleOp, axes: tuple[tuple[str, int], ...], **restrictions: str) -> Problem:
    prices = Prices(Mesh(axes, uneven=True), load_machine(MACHINE))
    return build(module, "main", prices, parse_batch("", entry_function(module)), restrictions)


def lowered(problem: Problem, result: Result) -> tuple[ModuleOp, Simulation]:
    """The program of a plan, and what the simulator says of it."""
    write(problem, result)
    ApplyShardingPass().apply(Context(), problem.module)
    problem.module.verify()
    return problem.module, simulate(problem.module, MACHINE)


def agrees(simulation: Simulation, result: Result) -> bool:
    """Time to the picosecond; no device needs more memory than was counted."""
    assert round(simulation.makespan_seconds / PICOSECOND) == round(result.seconds / PICOSECOND)
    assert max(simulation.peak_memory_bytes.values()) <= result.memory.peak_bytes
    return max(simulation.peak_memory_bytes.values()) == result.memory.peak_bytes


def parsed(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, Dist, Onnx):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    ShardcombineAnnotatePass().apply(context, module)
    return module
