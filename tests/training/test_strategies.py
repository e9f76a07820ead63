import keras
import pytest

from keras_bert_d2l.training.strategies import check_batch_size, make_strategy, scope_of


def test_mirrored_takes_all_devices():
    assert make_strategy("mirrored").num_replicas_in_sync == 2  # those of tests/conftest.py


def test_without_a_strategy_there_is_nothing_to_enter():
    with scope_of(make_strategy(None)):
        pass


def test_a_batch_must_divide_by_the_devices():
    strategy = make_strategy("mirrored")
    check_batch_size(4, strategy)
    check_batch_size(5, None)
    with pytest.raises(ValueError, match=r"batch_size=5 for 2 devices"):
        check_batch_size(5, strategy)


@pytest.mark.slow
def test_a_tpu_that_is_not_there_is_an_error_of_one_line():
    with pytest.raises(RuntimeError, match=r"^The TPU 'local' cannot be used: .*TPU VM") as error:
        make_strategy("tpu")
    assert "\n" not in str(error.value)


def test_other_backends_are_refused_by_name(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="Received: the backend 'jax'"):
        make_strategy("mirrored")
