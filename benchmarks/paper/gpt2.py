"""The paper's GPT-2 inference, distributed op for op as the original's `gpt2_dhp_transform` does it.

    build(Gpt2(24, 16, 2048), Configuration(D=2, T=4, P=2, K=4, batch=1024)) -> a level-3 module on 16 devices

Sequences have 8 tokens, weights are f16, and each layer's causal mask is a weight. Device numbers are the original's:
(d * T + t) * P + p.

* Blocks end after the second matmul of each MLP; what is left is a block too. As many on each device as on any other, the
  first devices one more. They run one per step of the schedule, and what a block makes for blocks on other devices is
  sent when the step ends: the residual, the product, and sizes, which cost nothing but make both devices wait for each
  other; the sizes of the output go straight from the first device to the last.
* Tensor parallelism is Megatron's: attention heads and the MLP's inner width; an allreduce after the second matmul of each.
* Outputs of microbatches are concatenated one by one; those of replicas stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from benchmarks.paper.gpt2_blocks import Gpt2, Pieces
from benchmarks.paper.mlp_stages import Configuration
from benchmarks.paper.pipedream import Stage, schedule
from benchmarks.paper.program import Function, module_of, moved, named, tuple_type

MODELS = {"gpt3-xl": Gpt2(24, 16, 2048), "gpt3-13B": Gpt2(40, 40, 5120), "gpt3-175B": Gpt2(96, 96, 12288)}
"""1.6B, 13B and 175B parameters."""

TRACED_LAYERS = 12
"""The original makes larger models of `gpt2-10.onnx` by repeating its last layer, with the same integer initializers."""


def build(model: Gpt2, c: Configuration) -> ModuleOp:
    """The inference step."""
    return _Builder(model, c).module()


class _Builder:
    def __init__(self, model: Gpt2, c: Configuration):
        self.model, self.c, self.ts = model, c, range(c.T)
        self.pieces = Pieces(model, c.T, c.rows)
        self.functions: list[FuncOp] = []
        pieces = self.pieces
        self.embedding, self.attention, self.mlp, self.final = (
            self.add(f) for f in (pieces.embedding(), pieces.attention(), pieces.mlp(), pieces.final())
        )
        self.first_block, self.block = self.block_function(0), self.block_function(1)
        blocks = model.layers + 1
        self.stages = [Stage(i, device) for i, device in enumerate(sorted(i % c.P for i in range(blocks)))]

    def add(self, function: FuncOp) -> FuncOp:
        self.functions.append(function)
        return function

    # What the pieces of a block need: the name and type of each value.

    def values(self, block: int) -> list[list[tuple[str, Attribute]]]:
        """Per piece."""
        pieces = self.pieces
        if block == self.model.layers:
            return [[*self.view(block - 1, "mlp"), *_numbered("final", pieces.final_weights)]]
        layer = f"h.{block}"
        integers = f"integers.{min(block, TRACED_LAYERS - 1)}"
        attention = [
            *_numbered(f"{layer}.attention", pieces.attention_weights),
            *_numbered(f"{integers}.attention", pieces.attention_integers),
        ]
        mlp = [
            *self.view(block, "attention"),
            *_numbered(f"{layer}.mlp", pieces.mlp_weights),
            *_numbered(f"{integers}.mlp", pieces.mlp_integers),
        ]
        if block:
            return [[*self.view(block - 1, "mlp"), *attention], mlp]
        embedding = [
            *_numbered("embedding", pieces.embedding_weights),
            *_numbered("integers.embedding", [*pieces.embedding_integers, pieces.past]),
        ]
        return [[*embedding, *attention], mlp]

    def view(self, layer: int, of: str) -> list[tuple[str, Attribute]]:
        """The width of the view of a product. An MLP's belongs to the block after it, which is what is repeated."""
        last = TRACED_LAYERS - (1 if of == "attention" else 2)
        if of == "mlp" and layer == self.model.layers - 1:
            last = TRACED_LAYERS - 1
        return _numbered(f"integers.{min(layer, last)}.{of}.view", self.pieces.view_integers)

    # One replica: T x P devices, t * P + p.

    def replica(self) -> FuncOp:
        """Per device the values of its blocks, each piece's packed; per t the microbatches' ids -> per t the output."""
        c = self.c
        arguments: list[Attribute] = []
        for t in self.ts:
            for stage in self.stages:
                for piece in self.values(stage.index):
                    types = tuple_type(tuple(type_ for _, type_ in piece))
                    arguments.append(moved(types, t * c.P + stage.device))
        for t in self.ts:
            arguments.append(moved(tuple_type((self.pieces.ids,) * c.K), t * c.P))
        f = Function("replica", arguments)
        given = iter(f.arguments)
        packed = [[[next(given) for _ in self.values(s.index)] for s in self.stages] for _ in self.ts]
        ids = [f.unpack(value) for value in given]
        states: dict[int, list[list[SSAValue]]] = {k: [[ids[t][k]] for t in self.ts] for k in range(c.K)}
        dims: dict[int, list[list[SSAValue]]] = {}
        outputs: list[SSAValue] = []
        for step in schedule(self.stages, c.K):
            for stage, k in step:
                operands = [packed[t][stage.index] for t in self.ts]
                devices = [t * c.P + stage.device for t in self.ts]
                if stage.index < self.model.layers:
                    block = self.block if stage.index else self.first_block
                    given_to = [[*state, *values] for state, values in zip(states[k], operands, strict=True)]
                    made = f.call(block, list(chain.from_iterable(given_to)), devices)
                    by_device = self.by_device(made)
                    if stage.index == 0:
                        dims[k] = [values[:-4] for values in by_device]
                    states[k] = [values[-4:] for values in by_device]
                else:
                    outputs = self.collect(f, k, outputs, states.pop(k), dims.pop(k), operands, devices)
            if c.P > 1:
                for stage, k in step:
                    if stage.index < self.model.layers:
                        self.send(f, stage, states[k], dims[k])
        return self.add(f.finish(outputs))

    def block_function(self, index: int) -> FuncOp:
        """A block on devices 0..T-1. Per device: state, packed values of its two pieces -> state. Block 0 takes ids for the
        state, and gives the output's sizes before it."""
        first, taken = (self.attention, self.pieces.state) if index else (self.embedding, [self.pieces.ids])
        packed = [tuple_type(tuple(type_ for _, type_ in piece)) for piece in self.values(index)]
        f = Function(f"block{index}", [moved(type_, t) for t in self.ts for type_ in (*taken, *packed)])
        given = self.by_device(f.arguments)
        made = [list(f.call(first, values[:-1], [t])) for t, values in enumerate(given)]
        self.reduce(f, made)
        for t, state in enumerate(made):
            state[-4:] = f.call(self.mlp, [*state[-4:], given[t][-1]], [t])
        self.reduce(f, made)
        return self.add(f.finish(list(chain.from_iterable(made))))

    def by_device(self, values: Sequence[SSAValue]) -> list[list[SSAValue]]:
        count = len(values) // self.c.T
        return [list(values[t * count : (t + 1) * count]) for t in self.ts]

    def reduce(self, f: Function, states: Sequence[list[SSAValue]]) -> None:
        """Sums the products."""
        if self.c.T > 1:
            for state, product in zip(states, f.allreduce([state[-1] for state in states]), strict=True):
                state[-1] = product

    def collect(
        self,
        f: Function,
        k: int,
        outputs: Sequence[SSAValue],
        states: Sequence[Sequence[SSAValue]],
        dims: Sequence[Sequence[SSAValue]],
        packed: Sequence[Sequence[SSAValue]],
        devices: Sequence[int],
    ) -> list[SSAValue]:
        """The outputs of all microbatches so far."""
        made = [
            f.call(self.final, [*sizes, *state, *values], [device])[0]
            for sizes, state, values, device in zip(dims, states, packed, devices, strict=True)
        ]
        if self.c.K == 1:
            return made
        if k == 0:
            return [f.identity(value) for value in made]
        return [f.concat([before, value]) for before, value in zip(outputs, made, strict=True)]

    def send(self, f: Function, stage: Stage, states: Sequence[list[SSAValue]], dims: Sequence[list[SSAValue]]) -> None:
        """What a block made, to where it is needed."""
        following, last = self.stages[stage.index + 1].device, self.stages[-1].device
        for t in self.ts:
            if stage.index == 0 and last != stage.device:
                dims[t][:] = [f.send(value, t * self.c.P + last) for value in dims[t]]
            if following != stage.device:
                states[t][:] = [f.send(value, t * self.c.P + following) for value in states[t]]

    # The entry.

    def module(self) -> ModuleOp:
        """All replicas. A value that several blocks of a device need is there once."""
        c, replica = self.c, self.replica()
        types: list[Attribute] = []
        names: list[tuple[str, str]] = []
        places: list[list[list[int]]] = []
        """Per replica, per argument of it, the entry's arguments."""
        for d in range(c.D):
            known: dict[tuple[str, int], int] = {}
            of_replica: list[list[int]] = []
            for t in self.ts:
                for stage in self.stages:
                    device = (d * c.T + t) * c.P + stage.device
                    for piece in self.values(stage.index):
                        for name, type_ in piece:
                            if (name, device) not in known:
                                known[name, device] = len(types)
                                types.append(moved(type_, device))
                                names.append(("parameter", name))
                        of_replica.append([known[name, device] for name, _ in piece])
            for t in self.ts:
                of_replica.append(list(range(len(types), len(types) + c.K)))
                types += [moved(self.pieces.ids, (d * c.T + t) * c.P)] * c.K
                names += [("input", "input1")] * c.K
            places.append(of_replica)
        f = Function("main", types)
        size = c.T * c.P
        outputs: list[SSAValue] = []
        for d, of_replica in enumerate(places):
            operands = [f.pack([f.arguments[i] for i in place]) for place in of_replica]
            outputs += f.call(replica, operands, range(d * size, (d + 1) * size))
        self.add(f.finish(outputs))
        results = [named("output", f"output1.{i}") for i in range(len(outputs))]
        return module_of(self.functions, [named(*n) for n in names], results, c.D * size)


def _numbered(name: str, types: Sequence[Attribute]) -> list[tuple[str, Attribute]]:
    return [(f"{name}.{i}", type_) for i, type_ in enumerate(types)]
