"""`DoctorCallback`: the doctor's checks during `fit`."""

import math
from collections.abc import Iterator, Mapping

import keras
import tensorflow as tf

from keras_bert_d2l.inspection.doctor import losses
from keras_bert_d2l.inspection.doctor.doctor import chance_of, diagnose
from keras_bert_d2l.inspection.doctor.evidence import Evidence
from keras_bert_d2l.inspection.doctor.finding import Finding
from keras_bert_d2l.inspection.doctor.weights import finite_weights, frozen_weights, weights_of
from keras_bert_d2l.training.run.state import sync

_INTERVAL = 100  # steps whose losses are averaged
_SETTLED = 5  # intervals after which a loss must have fallen


class DoctorCallback(keras.callbacks.Callback):
    """Callback that reports faults as soon as `fit` shows them, each once, and changes nothing.

    It checks the loss of the first step, losses that are not finite, rise or do not fall, and
    weights that do not change. With `data`, it examines a batch before the first step, as `doctor`
    does.

    Args:
        data: The training batches.

    Attributes:
        faults: The reported findings.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] what a film bore".split())
    bert = kb.BERTModel(len(vocab), 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=kb.Tokenizer(vocab))
    classifier.compile(kb.BERTAdamW(2e-5))
    doctor = kb.DoctorCallback()
    classifier.fit(["what a film", "a bore"], ["good", "bad"], callbacks=[doctor])
    print(doctor.faults)
    ```
    """

    def __init__(self, data: tf.data.Dataset | None = None) -> None:
        super().__init__()
        self.data = data
        self.faults: list[Finding] = []

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        self._before, self._losses, self._steps = weights_of(self.model), [0.0], 0
        if self.data is not None:
            evidence = Evidence(model=self.model, batches=self.data, may_train=False)
            self._report(*diagnose(evidence).findings)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        self._sum, self._batches = 0.0, 0  # of the running mean of Keras, which starts again

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        mean = float((logs or {}).get("loss", math.nan))
        self._batches += 1
        loss = mean * self._batches - self._sum
        self._sum += loss
        if not self._steps and (chance := chance_of(self.model)) is not None:
            self._report(losses.initial_loss(loss, chance, is_new=None))
        self._steps += 1
        self._losses[-1] += loss / _INTERVAL
        if not math.isfinite(loss):
            self._report(losses.rising_loss([loss]))
        elif self._steps % _INTERVAL == 0:
            self._report(*self._findings())
            self._losses.append(0.0)

    def _findings(self) -> Iterator[Finding]:
        sync(self.model)
        if len(self._losses) == 1:
            yield frozen_weights(self._before, weights_of(self.model))
        yield finite_weights(weights_of(self.model))
        if len(self._losses) > 1:
            yield losses.rising_loss(self._losses)
        if len(self._losses) >= _SETTLED and (found := losses.flat_loss(self._losses)):
            yield found

    def _report(self, *findings: Finding) -> None:
        known = {fault.name for fault in self.faults}
        new = [one for one in findings if one.is_fault and one.name not in known]
        self.faults.extend(new)
        for fault in new:
            print(f"\nDoctor: {fault}")
