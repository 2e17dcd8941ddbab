"""The paper's MLP training step, distributed op for op as the original's `mlp_dhp_transform` and optimizer do it.

    build(Mlp(layers=16, width=8192), Configuration(D=2, T=4, P=2, K=4, batch=1024)) -> a level-3 module on 16 devices

Layers are `relu(x @ w)` without bias, all of one width. Device numbers are the original's: (d * T + t) * P + p.

* Tensor parallelism cuts weights by columns, rows, columns, ...; every second matmul is followed by an allreduce, and so
  is every second gradient (of the activation only, also of layer 0, where nothing uses it).
* In a pipeline each stage has as many layers as any other; loss and its gradient are on the last. The first microbatch's
  gradients are copied, later ones added; its losses and input gradients are copied, then concatenated one by one.
  What a stage makes for another device is sent when the step of the schedule ends.
* Replicas come one after the other, then one allreduce per weight in the order of the gradients, then the optimizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from benchmarks.paper.mlp_stages import Configuration, Mlp, Mode, Stages, Values
from benchmarks.paper.pipedream import Stage, schedule
from benchmarks.paper.program import Function, device_of, module_of, moved, named, tensor, tuple_type
from distir.dialects.grad import LossGradOp, LossOp, SgdOp

MODELS = {"mlp-small": Mlp(16, 8192), "mlp-medium": Mlp(64, 16384), "mlp-large": Mlp(96, 32768)}
"""1B, 17B and 103B parameters."""


def build(model: Mlp, c: Configuration) -> ModuleOp:
    """The training step."""
    stages = Stages(model, c)
    return _entry(stages, Replica(stages).function())


class Replica:
    """One data-parallel replica, on devices t * P + p: the stages in the order of the schedule."""

    def __init__(self, stages: Stages):
        self.stages, self.ts, c = stages, stages.ts, stages.c
        self.P, self.K = c.P, c.K
        self.chain = [Stage(i, min(i, 2 * c.P - 1 - i), i >= c.P) for i in range(2 * c.P)]
        self.forward = stages.forward()
        modes: list[Mode] = ["only"] if c.K == 1 else ["first", "later"]
        self.backward = {
            (mode, outermost): stages.backward(mode, unit, outermost)
            for mode in modes
            for unit in [stages.backward_unit(mode)]
            for outermost in ((True, False) if c.P > 1 else (True,))
        }
        self.incoming: dict[tuple[int, int], Values] = {}
        """By stage and microbatch: what the stage before made, on this stage's devices."""
        self.stashes: dict[tuple[int, int], list[list[SSAValue]]] = {}
        self.sums: dict[int, list[list[SSAValue]]] = {}
        """By stage and device, packed: of gradients so far."""
        self.losses: list[Values] = []
        self.input_gradients: list[Values] = []

    def mode(self, microbatch: int) -> Mode:
        return "only" if self.K == 1 else "later" if microbatch else "first"

    def function(self) -> FuncOp:
        """Per device the weights; per t the microbatches of x (on stage 0), of the label and the count of samples (on the
        last stage) -> per device the gradients; per t the losses, and per t the gradients of x."""
        stages = self.stages
        arguments: list[Attribute] = []
        for t in self.ts:
            for p in range(self.P):
                arguments += [moved(part, t * self.P + p) for part in stages.weight_types(t)]
        parts = len(stages.weight_types(0))
        for t in self.ts:
            first, last = t * self.P, t * self.P + self.P - 1
            batch = tuple_type((stages.rows(t),) * self.K)
            arguments += [moved(batch, first), moved(batch, last), tensor((), last, stages.element_type)]
        f = Function("replica", arguments)
        weights = f.arguments[: -3 * len(self.ts)]
        self.weights = [list(weights[i : i + parts]) for i in range(0, len(weights), parts)]
        """By device."""
        data = stages.by_device(f.arguments[-3 * len(self.ts) :])
        x = [f.unpack(values[0]) for values in data]
        self.label = [f.unpack(values[1]) for values in data]
        self.samples = [values[2] for values in data]
        self.first_weights = [f.unpack(self.weights[t * self.P][0]) for t in self.ts]
        for k in range(self.K):
            self.incoming[0, k] = [x[t][k] for t in self.ts]
        for step in schedule(self.chain, self.K):
            made = [(stage, k, self.run(f, stage, k)) for stage, k in step]
            for stage, k, values in made:
                if stage.index + 1 < len(self.chain):
                    self.forward_to(f, self.chain[stage.index + 1], k, values)
        gradients = [part for t in self.ts for p in range(self.P) for part in self.sums[p][t]]
        return stages.add(f.finish([*gradients, *self.losses[0], *self.input_gradients[0]]))

    def forward_to(self, f: Function, stage: Stage, k: int, values: Values) -> None:
        """Values that a stage made, to where the next one is."""
        self.incoming[stage.index, k] = [
            value if device_of(value) == t * self.P + stage.device else f.send(value, t * self.P + stage.device)
            for t, value in zip(self.ts, values, strict=True)
        ]

    def run(self, f: Function, stage: Stage, k: int) -> Values:
        """A stage of a microbatch; what it made for the next."""
        return self.run_backward(f, stage, k) if stage.is_backward else self.run_forward(f, stage, k)

    def on(self, stage: Stage) -> list[int]:
        return [t * self.P + stage.device for t in self.ts]

    def run_forward(self, f: Function, stage: Stage, k: int) -> Values:
        x = self.incoming[stage.index, k]
        operands = [[*self.weights[device], x[t]] for t, device in enumerate(self.on(stage))]
        made = self.stages.call(f, self.forward, operands, self.on(stage))
        self.stashes[stage.device, k] = [values[1:] for values in made]
        activation = [values[0] for values in made]
        if stage.device < self.P - 1:
            return activation
        given = [[activation[t], self.label[t][k], self.samples[t]] for t in self.ts]
        loss = [f.add(LossOp.create(operands=v, result_types=[v[0].type])) for v in given]
        self.stages.collect(f, self.mode(k), self.losses, loss)
        return [f.add(LossGradOp.create(operands=v, result_types=[v[0].type])) for v in given]

    def run_backward(self, f: Function, stage: Stage, k: int) -> Values:
        p, mode = stage.device, self.mode(k)
        dy, x = self.incoming.pop((stage.index, k)), self.incoming.pop((p, k))
        stash, sums = self.stashes.pop((p, k)), self.sums.get(p, [[] for _ in self.ts])
        outermost = p == 0
        parts = slice(1 if outermost else 0, None)
        new: list[list[SSAValue]] = [[] for _ in self.ts]
        if (function := self.backward[mode, outermost]) is not None:
            operands = [
                [*self.weights[device][parts], *sums[t][parts], *([] if outermost else [x[t]]), *stash[t][parts], dy[t]]
                for t, device in enumerate(self.on(stage))
            ]
            made = self.stages.call(f, function, operands, self.on(stage))
            dy, new = [values[0] for values in made], [values[1:] for values in made]
        if outermost:
            given: list[list[list[SSAValue]]] = []
            for t in self.ts:
                kept = [x[t], *f.unpack(stash[t][0])]
                before = f.unpacked(sums[t][:1])
                weights = self.first_weights[t]
                given.append([[*kept[2 * i : 2 * i + 2], w, *before[i : i + 1]] for i, w in enumerate(weights)])
            dy, added = self.stages.emit_backward(f, mode, given, dy, self.input_gradients)
            new = [[f.pack(added[t]), *new[t]] for t in self.ts]
        self.sums[p] = new
        return dy


def _entry(stages: Stages, replica: FuncOp) -> ModuleOp:
    """All replicas, the sums over them, and the optimizer."""
    c, size, layers = stages.c, stages.c.T * stages.c.P, stages.layers
    types: list[Attribute] = []
    names: list[tuple[str, str]] = []
    for device in range(c.D * size):
        types += [moved(stages.weight(i, 0), device) for i in range(layers)]
        names += [("parameter", f"w{device % c.P * layers + i}") for i in range(layers)]
    for group in range(c.D * c.T):
        first, last = group * c.P, group * c.P + c.P - 1
        types += [stages.rows(first)] * c.K + [stages.rows(last)] * c.K + [tensor((), last, stages.element_type)]
        names += [("input", "x")] * c.K + [("label", "z")] * c.K + [("input", "n")]
    f = Function("main", types)
    arguments = iter(f.arguments)
    weights = [[next(arguments) for _ in range(layers)] for _ in range(c.D * size)]
    gradients: list[list[SSAValue]] = []
    outputs: list[SSAValue] = []
    for d in range(c.D):
        devices = range(d * size, (d + 1) * size)
        operands = [f.pack(part) for device in devices for part in stages.split(weights[device])]
        for _ in stages.ts:
            x, label = [f.pack([next(arguments) for _ in range(c.K)]) for _ in range(2)]
            operands += [x, label, next(arguments)]
        made = f.call(replica, operands, devices)
        parts = len(stages.weight_types(0))
        gradients += [f.unpacked(made[i : i + parts]) for i in range(0, size * parts, parts)]
        outputs += made[size * parts :]
    if c.D > 1:
        _reduce(f, stages, gradients)
    updated = [_update(f, w, g) for w, g in zip(weights, gradients, strict=True)]
    stages.add(f.finish([*chain.from_iterable(updated), *outputs]))
    results = names[: c.D * size * layers] + [("output", f"output{i}") for i in range(len(outputs))]
    return module_of(stages.functions, [named(*a) for a in names], [named(*r) for r in results], c.D * size)


def _reduce(f: Function, stages: Stages, gradients: list[list[SSAValue]]) -> None:
    """Replaces each gradient by its sum over the replicas, last layer first."""
    c = stages.c
    for p in reversed(range(c.P)):
        for layer in reversed(range(stages.layers)):
            for t in stages.ts:
                group = [(d * c.T + t) * c.P + p for d in range(c.D)]
                reduced = f.allreduce([gradients[device][layer] for device in group])
                for device, value in zip(group, reduced, strict=True):
                    gradients[device][layer] = value


def _update(f: Function, weights: Sequence[SSAValue], gradients: Sequence[SSAValue]) -> list[SSAValue]:
    """The original's one optimizer operation of a device: updates that are fused into the last one."""
    updates = [SgdOp(w, g, 0.0) for w, g in zip(weights, gradients, strict=True)]
    for update in updates[:-1]:
        update.attributes["fused"] = UnitAttr()
    return [f.add(update) for update in updates]
