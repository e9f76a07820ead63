"""Memory does not grow with the number of calls; `scripts.soak` calls far more often."""

import sys

import pytest

from scripts import soak


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.long
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
