"""Options of passes on a command line: whole numbers where fractions are taken, numbers where text is; what is wrong is said."""

from __future__ import annotations

import pytest
from xdsl.passes import PassPipeline
from xdsl.utils.arg_spec import parse_pipeline

from distir.tools.universe import DISTIR_UNIVERSE


def read(text: str):
    return PassPipeline.parse_spec(dict(DISTIR_UNIVERSE.all_passes), text).passes[0]


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("ilp-shard{time-limit=40}", "time_limit", 40.0),
        ("ilp-shard{time-limit=0.5}", "time_limit", 0.5),
        ("ilp-shard{time-limit=1e2}", "time_limit", 100.0),
        ("ilp-shard{memory-limit=1300}", "memory_limit", "1300"),
        ("ilp-shard{memory-limit=28GB}", "memory_limit", "28GB"),
        ("ilp-shard{explain=x,y}", "explain", "x,y"),
        ("beam-shard{width=4}", "width", 4),
        ("dtp-parallelize{dp=2.0}", "dp", 2),
    ],
)
def test_values_are_read_as_the_pass_takes_them(text: str, option: str, value: object):
    found = getattr(read(text), option)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ilp-shard{time-limit=nan}", "ilp-shard: time-limit: expected a number, got nan"),
        ("ilp-shard{time-limit=soon}", "ilp-shard: time-limit: expected a number, got soon"),
        ("ilp-shard{time-limit=1,2}", "ilp-shard: time-limit: expected a number, got 1,2"),
        ("dtp-parallelize{dp=nan}", "dtp-parallelize: dp: expected a whole number, got nan"),
        ("dtp-parallelize{dp=1.5}", "dtp-parallelize: dp: expected a whole number, got 1.5"),
        ("dtp-parallelize{dp=true}", "dtp-parallelize: dp: expected a whole number, got true"),
        ("beam-shard{widht=4}", r"beam-shard has no option widht: expected batch, .* \(did you mean width\?\)"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str):
    with pytest.raises(ValueError, match=message):
        read(text)


def test_a_pass_prints_as_it_was_asked_for():
    """As `--print-pipeline` and reproducers need."""
    one = read('ilp-shard{mesh="tp=2" time-limit=40}')
    (again,) = parse_pipeline(str(one.pipeline_pass_spec()))
    assert type(one).from_pass_spec(again) == one
