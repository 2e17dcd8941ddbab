"""Schedules as tables: they are PyTorch's, their bubbles are those of the papers, and what is wrong in one is named."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

from distir.dialects.errors import DistirError
from distir.passes.distribution.pipeline.table import Table, read_table
from distir.passes.distribution.pipeline.tasks import steps, table_of

VIRTUAL = ("interleaved", "looped-bfs", "zb-h1", "zbv", "dualpipev")
TORCH = {
    "interleaved": "ScheduleInterleaved1F1B",
    "looped-bfs": "ScheduleLoopedBFS",
    "zb-h1": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
    "dualpipev": "ScheduleDualPipeV",
}


def written(table: Table) -> list[list[str]]:
    return [[str(task) for task in row] for row in table.rows]


# --- PyTorch's own orders -----------------------------------------------------------------------------------------------


def torch_schedule(name: str, ranks: int, virtual: int, microbatches: int) -> Any:
    """PyTorch's schedule, of stages that do nothing."""
    from torch.distributed.pipelining import schedules

    stages = [
        SimpleNamespace(
            num_stages=ranks * virtual,
            group_size=ranks,
            group_rank=0,
            stage_index=i * ranks,
            submod=None,
            is_last=False,
        )
        for i in range(virtual)
    ]
    return getattr(schedules, TORCH[name])(stages, microbatches)


def grid() -> Iterator[tuple[str, int, int, int]]:
    for schedule, ranks, virtual, microbatches in product(VIRTUAL, (1, 2, 3, 4, 8), (1, 2, 3), range(1, 21)):
        rounds = max(1, microbatches // ranks)
        if schedule in ("zbv", "dualpipev") and (
            virtual != 2 or (schedule == "dualpipev" and microbatches < 2 * ranks)
        ):
            continue
        if schedule in ("interleaved", "zb-h1") and microbatches % rounds:
            continue  # PyTorch refuses
        yield schedule, ranks, virtual, microbatches


@pytest.mark.parametrize("schedule", VIRTUAL)
def test_the_order_is_that_of_pytorch(schedule: str, tmp_path: Path) -> None:
    path = tmp_path / "torch.csv"
    compared = 0
    for name, ranks, virtual, microbatches in grid():
        if name != schedule:
            continue
        theirs = torch_schedule(schedule, ranks, virtual, microbatches)
        theirs._dump_csv(path, "compute_only")
        ours = table_of(schedule, ranks, microbatches, ranks * virtual)
        assert written(ours) == written(read_table(path)), (ranks, virtual, microbatches)
        assert [theirs.stage_index_to_group_rank[stage] for stage in range(ours.stages)] == ours.rank_of
        compared += 1
    assert compared >= 60


@pytest.mark.parametrize("schedule", VIRTUAL)
def test_pytorch_reads_what_is_written_and_its_messages_are_read(schedule: str, tmp_path: Path) -> None:
    path, other = tmp_path / "ours.csv", tmp_path / "theirs.csv"
    theirs = torch_schedule(schedule, 3, 2, 6)
    ours = table_of(schedule, 3, 6, 6)
    path.write_text(ours.csv())
    theirs.pipeline_order = {}
    theirs._load_csv(path)
    theirs._dump_csv(other, "compute_comms")
    read = read_table(other)
    assert {task.kind for row in read.rows for task in row} >= {"SEND_F", "RECV_B", "UNSHARD", "RESHARD"}
    assert [[str(task) for task in row] for row in read.tasks] == written(ours)
    other.write_text(read.csv())
    assert written(read_table(other)) == written(read)


@pytest.mark.parametrize(("schedule", "name"), [("gpipe", "ScheduleGPipe"), ("1f1b", "Schedule1F1B")])
def test_one_stage_on_a_rank_runs_as_pytorch_runs_it(schedule: str, name: str) -> None:
    """These are loops in PyTorch: what they ask of a stage is recorded."""
    for ranks, microbatches in product((1, 2, 3, 4, 8), (1, 2, 3, 4, 7, 8, 16)):
        if microbatches >= ranks:
            assert written(table_of(schedule, ranks, microbatches)) == [
                run_by_torch(name, rank, ranks, microbatches) for rank in range(ranks)
            ]


def run_by_torch(name: str, rank: int, ranks: int, microbatches: int) -> list[str]:
    from torch.distributed.pipelining import schedules

    found: list[str] = []
    stage = MagicMock(
        num_stages=ranks, group_size=ranks, stage_index=rank, is_first=rank == 0, is_last=rank == ranks - 1
    )
    stage.forward_one_chunk.side_effect = lambda k, *_, **__: found.append(f"{rank}F{k}")
    stage.backward_one_chunk.side_effect = lambda k, *_, **__: found.append(f"{rank}B{k}")
    quiet = {each: MagicMock() for each in ("_batch_p2p", "_sorted_batch_p2p", "_wait_batch_p2p")}
    with patch.multiple(schedules, **quiet):
        schedule = getattr(schedules, name)(stage, microbatches, loss_fn=MagicMock())
        nothing = [()] * microbatches, [{}] * microbatches, [None] * microbatches
        with (
            patch.object(schedule, "_initialize_stage"),
            patch.object(schedule, "_maybe_compute_loss"),
            patch.object(schedule, "_maybe_get_loss"),
            patch.object(schedule, "_update_losses"),
            patch.object(schedule, "_check_inputs", lambda *_: nothing[:2]),
        ):
            schedule._step_microbatches(*nothing)
    return found


# --- bubbles and memory, as the papers have them --------------------------------------------------------------------------


def bubble(table: Table, seconds: dict[str, float]) -> Fraction:
    """The share of the time in which the ranks do nothing, on average, where messages take no time."""
    busy = sum(Fraction(seconds[task.kind]) for row in table.tasks for task in row)
    return 1 - busy / (len(table.rows) * Fraction(table.makespan(lambda task: seconds[task.kind])))


EQUAL = {"F": 1, "B": 2, "I": 1, "W": 1}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "1f1b-eager"])
def test_the_bubble_of_gpipe_and_1f1b(schedule: str) -> None:
    """(P - 1) / (K + P - 1), whatever a backward takes (Huang et al., 2019; Narayanan et al., 2021, section 2.2)."""
    for ranks, microbatches, backward in product((1, 2, 4, 7), (1, 4, 9, 32), (1, 2, 3)):
        found = bubble(table_of(schedule, ranks, microbatches), {"F": 1, "B": backward})
        assert found == Fraction(ranks - 1, microbatches + ranks - 1)


def test_the_bubble_of_interleaved_1f1b_is_divided_by_the_stages_of_a_rank() -> None:
    """Of the ideal time (P - 1) / (V K), where K is a multiple of P (Narayanan et al., 2021, section 2.2)."""
    for ranks, virtual, rounds in product((2, 3, 4, 8), (1, 2, 3, 4), (1, 2, 5)):
        table = table_of("interleaved", ranks, ranks * rounds, ranks * virtual)
        idle = bubble(table, EQUAL)
        assert idle / (1 - idle) == Fraction(ranks - 1, virtual * ranks * rounds)


def test_the_bubble_of_looped_breadth_first_is_divided_too() -> None:
    for ranks, virtual, rounds in product((2, 3, 4), (1, 2, 3), (1, 2, 5)):
        idle = bubble(table_of("looped-bfs", ranks, ranks * rounds, ranks * virtual), EQUAL)
        assert idle / (1 - idle) == Fraction(ranks - 1, virtual * ranks * rounds)


@pytest.mark.parametrize(("forward", "inputs", "weights"), [(1, 1, 1), (2, 3, 1), (3, 2, 2)])
def test_the_bubble_of_zb_h1(forward: int, inputs: int, weights: int) -> None:
    """(P - 1) (F + I - W) in all that a rank waits, with the memory of 1F1B: at most P microbatches (Qi et al., 2023, table 1)."""
    for ranks, microbatches in product((2, 3, 4, 8), (8, 16, 31)):
        table = table_of("zb-h1", ranks, microbatches)
        took = table.makespan(lambda task: {"F": forward, "I": inputs, "W": weights}[task.kind])
        ideal = microbatches * (forward + inputs + weights)
        assert took - ideal == (ranks - 1) * (forward + inputs - weights), (ranks, microbatches)
        assert max(table.in_flight()) <= ranks


def test_zbv_has_no_bubble_beyond_the_first_microbatch() -> None:
    """Where forward, input and weight parts take equally long, a rank waits for P - 1 forwards of half a stage (Qi et al., 2023, section 6)."""
    for ranks, microbatches in product((2, 3, 4, 8), (16, 31)):
        took = table_of("zbv", ranks, microbatches, ranks * 2).makespan(lambda task: EQUAL[task.kind])
        assert took - 6 * microbatches == ranks - 1


def test_microbatches_in_flight() -> None:
    for ranks, microbatches in product((1, 2, 4, 8), (8, 20)):
        assert table_of("1f1b", ranks, microbatches).in_flight() == [ranks - stage for stage in range(ranks)]
        eager = [min(microbatches, 2 * (ranks - stage) - 1) for stage in range(ranks)]
        assert table_of("1f1b-eager", ranks, microbatches).in_flight() == eager
        assert table_of("gpipe", ranks, microbatches).in_flight() == [microbatches] * ranks


def test_interleaved_takes_any_number_of_microbatches() -> None:
    for ranks, virtual, microbatches in product((1, 2, 3, 4, 8), (1, 2, 3), range(1, 24)):
        for schedule in ("interleaved", "zb-h1"):
            assert table_of(schedule, ranks, microbatches, ranks * virtual).stages == ranks * virtual


# --- tables of anyone -----------------------------------------------------------------------------------------------------


def random_table(random: Random) -> Table:
    """A valid table: any rank takes any action that can run now, until all are done."""
    ranks, virtual, microbatches = random.randint(1, 4), random.randint(1, 3), random.randint(1, 6)
    home = random.sample([rank for rank in range(ranks) for _ in range(virtual)], ranks * virtual)
    split = {(s, k): random.random() < 0.5 for s in range(len(home)) for k in range(microbatches)}
    waiting = [(s, kind, k) for (s, k), parts in split.items() for kind in ("FIW" if parts else "FB")]
    done: set[tuple[int, str, int]] = set()
    rows: list[list[str]] = [[] for _ in range(ranks)]

    def back(stage: int, k: int) -> bool:
        return stage == len(home) or (stage, "I" if split[stage, k] else "B", k) in done

    while waiting:
        ready = [
            (s, kind, k)
            for s, kind, k in waiting
            if (kind == "F" and (s == 0 or (s - 1, "F", k) in done))
            or (kind in "IB" and (s, "F", k) in done and back(s + 1, k))
            or (kind == "W" and (s, "I", k) in done)
        ]
        chosen = random.choice(ready)
        waiting.remove(chosen)
        done.add(chosen)
        rows[home[chosen[0]]].append("{}{}{}".format(*chosen))
    return saved(rows)


def saved(rows: Sequence[Sequence[str]]) -> Table:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_text("\n".join(",".join(row) for row in rows) + "\n")
        return read_table(path)


def test_random_tables_run_in_order() -> None:
    for seed in range(50):
        table = random_table(Random(seed))
        done: set[tuple[int, str, int]] = set()
        at = [0] * len(table.rows)
        for step in table.all_steps:
            before = set(done)
            for task in step:
                rank = table.rank_of[task.stage]
                assert table.tasks[rank][at[rank]] == task
                at[rank] += 1
                s, k = task.stage, task.microbatch
                last = s + 1 == table.stages
                assert {
                    "F": s == 0 or (s - 1, "F", k) in before,
                    "B": (s, "F", k) in before and (last or (s + 1, "I", k) in before),
                    "I": (s, "F", k) in before and (last or (s + 1, "I", k) in before),
                    "W": (s, "I", k) in before,
                }[task.kind]
                done |= {(s, kind, k) for kind in ("IW" if task.kind == "B" else task.kind)}
        assert at == [len(row) for row in table.tasks]


def test_broken_tables_are_named() -> None:
    """In each, one thing is wrong, and the message has the action."""
    for seed in range(50):
        random = Random(seed)
        rows = [[str(task) for task in row] for row in random_table(random).rows]
        rank = random.randrange(len(rows))
        row = rows[rank]
        wrong = seed % 4
        if wrong == 0:
            expected = f"{row.pop(random.randrange(len(row)))} is missing"
        elif wrong == 1:
            twice = random.choice(row)
            row.insert(random.randrange(len(row)), twice)
            expected = f"{twice} comes again on rank {rank}"
        elif wrong == 2:  # a backward before its forward
            early = next(cell for cell in reversed(row) if "B" in cell or "I" in cell)
            forward = early.replace("B", "F").replace("I", "F")
            row.remove(early)
            row.insert(row.index(forward), early)
            expected = f"{early} on rank {rank} waits for {forward}, which comes after it"
        else:
            rows.append(["99F0"])
            expected = "F0 is missing"
        with pytest.raises(DistirError) as caught:
            saved(rows)
        assert expected in str(caught.value), seed
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0F0,0B0,0F1,0B1", "1F0,1F1,1B0,1B1"], "0B0 on rank 0 waits for rank 1, 1F1 on rank 1 waits for rank 0"),
        (["0F0,0B0", "1B0,1F0"], "1B0 on rank 1 waits for 1F0, which comes after it"),
        (["0F0,0W0,0I0"], "0W0 on rank 0 waits for 0I0, which comes after it"),
        (["0F0,0B0", "1F0"], "1B0 is missing on rank 1"),
        (["0F0,0F1", "1F0"], "1F1 is missing on rank 1"),
        (["0F0,2F0"], "1F0 is missing"),
        (["0F0,0B0,0W0"], "0W0 comes beside 0B0 on rank 0"),
        (["0F0,1F0", "1F1,0F1"], "1F1 is on rank 1, and stage 1 on rank 0"),
        (["0F0", "1RECV_F0,1F0"], "1RECV_F0 on rank 1 waits for 0SEND_F0, which is missing"),
        (["", "0F0"], "rank 0 has nothing to do"),
        (["0F0,0X0"], "rank 0: expected an action such as 2F0, 1I3 or 0SEND_F1, got '0X0'"),
        (["0F"], "got '0F'"),
        ([",,"], "a schedule of no actions"),
        (["0F99999999999999999999"], "expected an action"),
    ],
)
def test_what_is_wrong_is_said(rows: list[str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(rows))
    with pytest.raises(DistirError, match=message):
        read_table(path)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "bytes.csv").write_bytes(b"\xff\x00\x01")
    with pytest.raises(DistirError, match="not a CSV file"):
        read_table(tmp_path / "bytes.csv")
    with pytest.raises(DistirError, match="No such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(DistirError, match="Is a directory"):
        read_table(tmp_path)


def test_a_pair_that_pytorch_overlaps_is_read_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "pair.csv"
    path.write_text("0F0,(0F1;0B0)OVERLAP_F_B,,0B1\n")
    assert written(read_table(path)) == [["0F0", "0F1", "0B0", "0B1"]]
    assert [[str(task) for task in step] for step in steps(str(path), 1, 2, True)] == [
        ["0F0"],
        ["0F1"],
        ["0B0"],
        ["0B1"],
    ]


def test_a_table_for_another_pipeline_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text(table_of("1f1b", 2, 4).csv())
    with pytest.raises(
        DistirError, match="has 2 ranks, 2 stages and 4 microbatches: the program has 3 ranks, 3 stages"
    ):
        table_of(str(path), 3, 4)
