"""A budget in time on a simulated machine."""

import dataclasses
import itertools

import pytest

from keras_bert_d2l.training.pretraining.budget import PARTS, Budget, expectation

PHASES = (2500, 5000, PARTS)


def simulated(minutes, slowdown, evaluation=3.0, tracing=0.0):
    """Run a budget with steps of 0.1 s, multiplied by the slowdown from half of the time on.

    Each later phase is traced for `tracing` seconds. Returns the budget, the planned number of
    steps, and the last part and pace of each interval.
    """
    budget, step, seconds = Budget(minutes, seconds=5.0), 10, None
    ends, paces = [], []
    budget.time_steps(10)
    budget.seconds += 1.0
    planned = budget.plan(0.1, evaluation, tracing, len(PHASES) - 1)
    for number, phase in enumerate(PHASES):
        later = len(PHASES) - 1 - number
        while budget.used(step) < phase:
            budget = Budget(**dataclasses.asdict(budget))  # as after a restart
            budget.begin_interval(phase, later, seconds)
            seconds = 0.1 * (slowdown if budget.seconds > 30 * minutes else 1.0)
            budget.seconds += (budget.last_step - step) * seconds + evaluation
            budget.seconds += tracing if budget.traces else 0.0
            step = budget.last_step
            ends.append(budget.last_part)
            paces.append(budget.parts_per_step())
    return budget, planned, ends, paces


@pytest.mark.parametrize("slowdown", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("minutes", [2, 10, 200])
def test_the_run_ends_in_time_on_a_machine_that_changes(minutes, slowdown):
    budget, planned, ends, _ = simulated(minutes, slowdown)
    assert budget.seconds == pytest.approx(60 * minutes, rel=0.15)
    steps = budget.last_step - 10
    assert steps == pytest.approx(planned * (0.5 + 0.5 / slowdown), rel=0.25)
    assert set(PHASES) <= set(ends)
    assert all(b - a >= budget.every // 2 for a, b in itertools.pairwise([0, *ends]))
    assert len(ends) <= 10 + len(PHASES)


@pytest.mark.parametrize("tracing", [0.0, 10.0])
def test_evaluating_and_tracing_hardly_change_the_pace(tracing):
    *_, paces = simulated(5, 1.0, evaluation=3.0, tracing=tracing)
    assert max(paces) / min(paces) < 1.1


def test_a_run_without_time_ends_after_one_step():
    budget = Budget(1.0, seconds=70.0)
    budget.time_steps(10)
    budget.plan(1.0, 1.0, 0.0, later_phases=0)
    budget.begin_interval(2500, later_phases=2)
    assert (budget.last_step, budget.last_part) == (11, PARTS)


def test_a_run_whose_time_was_used_by_restarts_evaluates_only_at_the_ends_of_its_phases():
    budget = Budget(2.0, seconds=20.0)
    budget.time_steps(10)
    budget.plan(0.1, 1.0, 0.0, later_phases=2)
    budget.seconds = 119.0  # for one evaluation instead of ten, and a few steps
    ends = []
    for later, phase in zip((2, 1, 0), PHASES, strict=True):
        while budget.last_part < phase:
            budget.begin_interval(phase, later)
            ends.append(budget.last_part)
    assert ends == list(PHASES)


def test_the_plan_reserves_time_for_evaluations_and_tracing():
    budget = Budget(2.0, seconds=20.0)
    budget.time_steps(10)
    assert budget.plan(0.1, 1.0, 5.0, later_phases=2) == 800  # 100 s - 10 evaluations - 2 * 5 s


def test_evaluations_take_a_tenth_of_the_time_at_most():
    assert len(simulated(10, 1.0, evaluation=20.0)[2]) <= 3 + len(PHASES)


def test_a_budget_that_is_too_small_is_reported_with_one_that_is_enough():
    assert expectation(10**6, 10**6, 2.0) == [
        "Expect: function words only",
        "Warning: this is too little to use the context of a word. Give about 20 minutes, or train "
        "a smaller model.",
    ]
    assert expectation(10**8, 10**6, 2.0) == ["Expect: common phrases"]
    assert expectation(10**11, 10**9, 2.0) == ["Expect: facts of the text"]
