import pytest

from keras_bert_d2l.training.finetuning.progress import FinetuningProgress


def test_ties_between_epochs_go_to_the_lower_loss():
    state = FinetuningProgress(monitor="val_f1")
    epochs = [(0.5, 0.7), (0.5, 0.6), (0.5, 0.6), (0.5, None), (None, 0.1), (0.4, 0.2)]
    better = [state.add_epoch({"val_f1": f1, "val_loss": loss}) for f1, loss in epochs]
    assert better == [True, True, False, False, False, False]
    assert state.best_epoch == 2


@pytest.mark.parametrize("monitor", ["val_loss", "val_error", "val_cross_entropy"])
def test_lower_errors_and_losses_are_better(monitor):
    state = FinetuningProgress(monitor=monitor)
    assert [state.add_epoch({monitor: x}) for x in (1.0, 2.0, 1.0, 0.5)] == [
        True,
        False,
        False,
        True,
    ]
