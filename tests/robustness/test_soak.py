"""Memory does not grow with the number of calls; `scripts.soak` calls far more often."""

import sys

import pytest

from scripts import soak


def test_growth_is_that_of_the_second_half_whatever_the_first_calls_need():
    warm_up = [500_000_000, 800_000_000, *range(900_000_000, 900_050_000, 1_000)]
    assert soak.growth_of(warm_up) < soak.MOST_GROWTH
    assert soak.growth_of([900_000_000 + 1_000_000 * n for n in range(50)]) > soak.MOST_GROWTH


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_function_that_keeps_memory_is_found(capsys):
    watch, kept = soak.Watch("leaking", soak.settled, 1), []
    for _ in range(8):
        kept.append(bytearray(b"x") * 2**26)
        watch.count()
    assert not watch.is_flat()
    assert "GROWS leaking" in capsys.readouterr().out
    kept.clear()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", soak.KINDS)
@pytest.mark.filterwarnings("ignore:Truncated")
def test_the_memory_of_questions_does_not_grow(kind):
    assert soak.ask(kind, ["tokenizer", "classify", "embed", "predict"], 400)
