"""The makespan of a plan, where prices do not add up to it. In go a plan and the sum of its prices; out come
seconds, to the picosecond.

Prices add up what the slowest device of every operation takes. Mostly that is one device throughout, the one in the middle of the
mesh, and the sum is the makespan. Where extents do not divide, another one may be slower here and there (its shard is smaller, but not
aligned), and the two need not wait for each other: then the sum is more than the makespan. The makespan is at least the sum
less what any one device waits, which bounds both this plan's and every other's."""

from __future__ import annotations

from xdsl.context import Context

from distir.interpreters.simulate.summaries import open_program
from distir.passes.sharding.plans import ShardingPlan, annotate
from distir.passes.sharding.problem import Problem


def makespan_seconds(problem: Problem, plan: ShardingPlan, total: float) -> float:
    """Seconds that one run of the program takes which a plan becomes: `total`, the sum of its prices, or what the simulator says where
    devices do not wait for one another."""
    is_sum = not problem.prices.groups_differ and not any(option.price.waits[0] for option in plan.options.values())
    if is_sum:
        return total
    from distir.passes.apply_sharding import ApplyShardingPass
    from distir.passes.pipeline_schedule import PipelineSchedulePass

    annotate(problem, plan)
    module, entry, prices = problem.module.clone(), problem.entry.sym_name.data, problem.prices
    ApplyShardingPass(entry, grouped=True).apply(Context(), module)
    if problem.order is not None:
        PipelineSchedulePass(problem.order.schedule).apply(Context(), module)
    return open_program(module, prices.machine, prices.cost_model, entry).summary().makespan_seconds


def most_waited_seconds(problem: Problem) -> float:
    """By how much less than the sum of its prices the makespan of any plan is at most."""
    found = [0, 0]
    for function in problem.functions:
        for op in function.body.block.ops:
            for device, waits in enumerate(zip(*(o.price.waits for o in problem.options.get(op, ())), strict=True)):
                found[device] += problem.counts[function.sym_name.data] * max(waits)
    return min(found) * 1e-12
