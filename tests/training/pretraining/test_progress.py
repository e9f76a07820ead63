"""A budget in time on a simulated machine."""

import dataclasses
import itertools

import pytest

from keras_bert_d2l.training.pretraining.progress import PARTS, Budget

PHASES = (2500, 5000, PARTS)
SAME, RAMP = (100, 100, 100), (25, 50, 100)  # tokens per step of each phase


def simulated(minutes, slowdown=1.0, evaluation=3.0, tracing=0.0, *, tokens=SAME, guess=None):
    """Run a budget with 1 ms per token, multiplied by the slowdown from half of the time on.

    Each later phase is traced for `tracing` seconds, and the first guess of the time per evaluation
    is `guess`. Returns the budget, the planned number of tokens, and the last part, pace, number of
    tokens and the shortest allowed number of parts of each interval.
    """
    budget, step, seconds = Budget(minutes, seconds=5.0), 10, None
    intervals = []
    budget.time_steps(10)
    budget.seconds += 1.0
    planned = budget.plan(0.001, guess or evaluation, tracing, len(PHASES) - 1)
    for number, (phase, size) in enumerate(zip(PHASES, tokens, strict=True)):
        later = len(PHASES) - 1 - number
        while budget.used(step) < phase:
            budget = Budget(**dataclasses.asdict(budget))  # as after a restart
            budget.begin_interval(phase, later, size, seconds)
            seconds = 0.001 * (slowdown if budget.seconds > 30 * minutes else 1.0)
            number_of_tokens = (budget.last_step - step) * size
            budget.seconds += number_of_tokens * seconds + evaluation
            budget.seconds += tracing if budget.traces else 0.0
            step = budget.last_step
            pace = budget.parts_per_step() / size
            intervals.append((budget.last_part, pace, number_of_tokens, budget.every // 2))
    return budget, planned, *map(list, zip(*intervals, strict=True))


@pytest.mark.parametrize("tokens", [SAME, RAMP])
@pytest.mark.parametrize("slowdown", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("minutes", [2, 10, 200])
def test_the_run_ends_in_time_on_a_machine_that_changes(minutes, slowdown, tokens):
    budget, planned, ends, _, counts, shortest = simulated(minutes, slowdown, tokens=tokens)
    assert budget.seconds == pytest.approx(60 * minutes, rel=0.15)
    assert sum(counts) == pytest.approx(planned * (0.5 + 0.5 / slowdown), rel=0.25)
    assert set(PHASES) <= set(ends)
    lengths = [b - a for a, b in itertools.pairwise([0, *ends])]
    assert all(length >= least for length, least in zip(lengths, shortest, strict=True))
    assert len(ends) <= 10 + len(PHASES)


@pytest.mark.parametrize("tracing", [0.0, 10.0])
@pytest.mark.parametrize("tokens", [SAME, RAMP])
def test_evaluating_tracing_and_larger_batches_hardly_change_the_pace(tracing, tokens):
    paces = simulated(5, tracing=tracing, tokens=tokens)[3]
    assert max(paces) / min(paces) < 1.1


@pytest.mark.parametrize("minutes", [1, 3, 10])
def test_a_ramp_and_slow_evaluations_keep_to_the_time_without_tiny_intervals(minutes):
    budget, _, ends, _, counts, _ = simulated(
        minutes, evaluation=3.0, tracing=1.0, tokens=RAMP, guess=0.1
    )
    assert budget.seconds == pytest.approx(60 * minutes, rel=0.1)
    # After the first interval, evaluations take a tenth of the time at most, except those at the
    # ends of the phases.
    assert 3.0 * (len(ends) - len(PHASES) - 1) <= 6 * minutes
    assert min(counts) > 1000


def test_a_run_without_time_ends_after_one_step():
    budget = Budget(1.0, seconds=70.0)
    budget.time_steps(10)
    assert budget.plan(0.01, 1.0, 0.0, later_phases=0) == 0.0
    budget.begin_interval(2500, 2, 100)
    assert (budget.last_step, budget.last_part) == (11, PARTS)


def test_a_run_whose_time_was_used_by_restarts_evaluates_only_at_the_ends_of_its_phases():
    budget = Budget(2.0, seconds=20.0)
    budget.time_steps(10)
    budget.plan(0.001, 1.0, 0.0, later_phases=2)
    budget.seconds = 119.0  # for one evaluation instead of ten, and a few steps
    ends = []
    for later, phase in zip((2, 1, 0), PHASES, strict=True):
        while budget.last_part < phase:
            budget.begin_interval(phase, later, 100)
            ends.append(budget.last_part)
    assert ends == list(PHASES)


def test_the_plan_reserves_time_for_evaluations_and_tracing():
    budget = Budget(2.0, seconds=20.0)
    budget.time_steps(10)
    # 100 s, without 10 evaluations and twice 5 s for tracing
    assert budget.plan(0.001, 1.0, 5.0, later_phases=2) == pytest.approx(80_000)


def test_evaluations_take_a_tenth_of_the_time_at_most():
    assert len(simulated(10, evaluation=20.0)[2]) <= 3 + len(PHASES)
