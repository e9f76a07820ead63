"""`doctor`: find out why a run does not learn."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import check_type
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.report.duplicates import find_copies
from keras_bert_d2l.data.report.report import count_ids
from keras_bert_d2l.data.store.token_store import TokenStore
from keras_bert_d2l.data.tasks.examples import TaskExamples, TextExamples
from keras_bert_d2l.inspection.doctor import batches, labels, losses, speed, text, weights
from keras_bert_d2l.inspection.doctor.evidence import (
    Evidence,
    Options,
    of_options,
    of_run,
    options_for,
)
from keras_bert_d2l.inspection.doctor.finding import Diagnosis, Finding
from keras_bert_d2l.inspection.learning_rate.range_test import find_learning_rate
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.losses import WeightedCrossEntropy
from keras_bert_d2l.models.tasks.answerer import QuestionAnswerer
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.vocab.vocab import Vocab
from keras_bert_d2l.training.devices.precision import bfloat16_speedup
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.types import PathLike

_COUNTED = 64  # batches whose tokens are counted
_MEASURED = 5  # times; a busy machine makes single measurements unreliable
_USUAL_LEN = 128  # tokens per row in fine-tuning, whose texts are mostly shorter than `max_len`
Found = Iterable[Finding | None]
Metrics = Mapping[str, float]


def doctor(
    run: PathLike | None = None,
    *,
    data: PathLike | tf.data.Dataset | None = None,
    model: PathLike | BERTModel | TaskModel | None = None,
    task: str | None = None,
    dev: PathLike | None = None,
    lr_find: bool = False,
) -> Diagnosis:
    """Find out why a run does not learn, or whether data and a model are ready for one.

    Each check compares a number with limits, and has a remedy: losses and learning rate, text and
    vocabulary, labels, masks and padding, weights and gradients, precision and waiting for data.
    Checks whose data is missing are skipped and listed. Nothing is written or changed.

    Args:
        run: The folder or URL of a run of `pretrain` or `finetune`.
        data: Instead of a run: a text or a token store; a file of examples, with `task`; or a
            dataset of training batches, for your own `fit`.
        model: The checkpoint to start from. Optional for a text. For a dataset, the compiled model.
        task: The task of the examples, as for `finetune_files`.
        dev: The development data of the examples.
        lr_find: Also test learning rates from the start of the run, which takes up to 100 steps.

    Returns: a `Diagnosis`.

    Raises:
        FileNotFoundError: The run, the data or the checkpoint is missing.
        ValueError: The arguments do not belong together, a file is damaged, or the data does not
            fit the task or the model.
        RuntimeError: The Keras backend is not TensorFlow, which computes the gradients.

    Example:

    ```python
    import numpy as np
    import tensorflow as tf
    import keras_bert_d2l as kb

    bert = kb.BERTModel(50, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    model = kb.SequenceClassifier(bert, ["bad", "good"])
    model.compile(kb.BERTAdamW(1e-4))
    tokens = np.random.randint(5, 50, (8, 6))
    batch = {"tokens": tokens, "segments": 0 * tokens}, tokens[:, 1] % 2
    diagnosis = kb.doctor(data=tf.data.Dataset.from_tensors(batch), model=model)
    print(diagnosis)
    ```
    """
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            "`doctor` computes gradients with TensorFlow. Received: the Keras backend "
            f"{keras.backend.backend()!r}; unset KERAS_BACKEND. Runs of other backends are fine."
        )
    is_run = run is not None and data is None and model is None and task is None and dev is None
    if run is not None and is_run:
        evidence = of_run(run)
    elif run is not None or data is None:
        given = {"run": run, "data": data, "model": model, "task": task, "dev": dev}
        names = [name for name, value in given.items() if value is not None]
        raise ValueError(
            "Pass either the folder of a `run`, or `data`. Received: "
            f"{' and '.join(f'`{name}`' for name in names) or 'neither'}."
        )
    elif dev is not None and task is None:
        raise ValueError(
            f"`dev` requires `task`, because a part of a text is held out. Received: dev={dev!r}."
        )
    elif isinstance(model, BERTModel | TaskModel):
        evidence = _in_memory(model, data)
    else:
        options = options_for(data, model, task, dev)
        evidence = dataclasses.replace(of_options(options), options=options)
    return diagnose(with_range_test(evidence) if lr_find else evidence)


def _in_memory(model: BERTModel | TaskModel, data: Any) -> Evidence:
    """Return the evidence of a model and its batches, after checking them."""
    check_type("data", data, tf.data.Dataset, "A model in memory needs its training batches.")
    if getattr(model, "optimizer", None) is None:
        raise ValueError("`model` must be compiled. Received: a model without an optimizer.")
    batch = next(iter(data), None)
    if not isinstance(batch, tuple) or not isinstance(batch[0], Mapping):
        raise ValueError(
            "`data` must contain batches `(features, labels)`, with a dictionary of features such "
            f"as `tokens`. Received: {data!r:.200}; for texts, pass their file and its `task`."
        )
    return Evidence(model=model, batches=data)


def with_range_test(evidence: Evidence) -> Evidence:
    """Add a range test of learning rates from the start of a run to its evidence."""
    if evidence.options is None:
        raise ValueError(
            "`lr_find` requires the options of a run. Received: a model in memory, or a run "
            "without run.yaml; call `find_learning_rate` instead."
        )
    start: Any = of_options(evidence.options)  # has a model and batches
    return dataclasses.replace(evidence, tested=find_learning_rate(start.model, start.batches))


def diagnose(evidence: Evidence) -> Diagnosis:
    """Run all checks for which there is evidence."""
    options, records, model, store = (
        evidence.options,
        evidence.records,
        evidence.model,
        evidence.store,
    )
    found: list[Finding | None] = []
    skipped = list(evidence.skipped)
    counts = None if store is None else count_ids(store.tokens, store.vocab_size)
    if records:
        found += _check_losses(_of_last_phase(records))
    if records and model is not None and isinstance(options, PretrainingOptions):
        found.append(_check_start(records[0], options, model.bert_config))
        length = _row_len(records[-1])
        if length is not None and length < options.max_len:
            skipped.append(
                f"Held-out losses: their rows have {options.max_len} tokens, but the run still "
                f"trains on rows of {length}."
            )
        elif _is_causal(records[-1]):
            skipped.append(
                "Held-out losses: they measure masked tokens, which the run does not predict yet."
            )
        else:
            found += _check_held_out(_of_last_phase(records), options, counts)
    if records and "val_accuracy" in records[-1]:
        found.append(labels.constant_predictions(evidence.warning))
    if options is not None and model is not None:
        found += _check_options(options, model.bert_config)
    if options is not None and evidence.tested is not None:
        proposal = evidence.tested.proposal
        is_new = isinstance(options, PretrainingOptions) and not options.init
        if proposal is None and not is_new:
            skipped.append(
                "Tested learning rate: no rate lowers the loss of this checkpoint in so few steps. "
                "It knows the text, or the labels are hard to learn."
            )
        else:
            found.append(losses.tested_learning_rate(options.learning_rate, proposal))
    if store is not None and counts is not None:
        found += _check_text(store, counts)
    if evidence.examples is not None:
        found += _check_examples(*evidence.examples)
    if model is not None:
        found += _check_weights(model, evidence.before)
    if model is not None and evidence.batches is not None:
        found += _check_batches(evidence, model, evidence.batches)
        found += _check_gradients(evidence, model, evidence.batches)
    return Diagnosis(tuple(filter(None, found)), tuple(skipped), evidence.tested)


def _row_len(record: Metrics) -> int | None:
    """Return the tokens per row of the steps before an evaluation, or `None` if it is unknown."""
    if "tokens/s" not in record:
        return None
    return round(record["tokens/s"] / record["sequences/s"])


def _is_causal(record: Metrics) -> bool:
    """Return whether the steps before an evaluation predicted next tokens, not masked ones."""
    return "next_token_accuracy" in record


def _of_last_phase(records: Sequence[Metrics]) -> list[Metrics]:
    """Return the records since the row length or the task of the steps changed last.

    The losses before and after do not compare.
    """
    last = records[-1]
    same = itertools.takewhile(
        lambda x: _row_len(x) in (None, _row_len(last)) and _is_causal(x) == _is_causal(last),
        reversed(records),
    )
    return [*same][::-1]


def _check_losses(records: Sequence[Metrics]) -> Found:
    trained = [record["loss"] for record in records if "loss" in record]
    if trained:
        yield losses.rising_loss(trained)
        yield losses.flat_loss(trained)


def _check_start(record: Metrics, options: PretrainingOptions, config: BERTConfig) -> Finding:
    of_heads = [name for name in ("mlm", "nsp") if f"val_{name}_cross_entropy" in record]
    loss = sum(record[f"val_{name}_cross_entropy"] for name in of_heads)
    chance = math.log(config.vocab_size) + (math.log(2) if "nsp" in of_heads else 0)
    return losses.initial_loss(loss, chance, is_new=options.init is None)


def _check_held_out(
    records: Sequence[Metrics], options: PretrainingOptions, counts: np.ndarray | None
) -> Found:
    steps = [int(record["step"]) for record in records]
    held_out = [record["val_mlm_cross_entropy"] for record in records]
    yield losses.overfitting(held_out)
    done = steps[-1] - steps[0]
    if "val_nsp_cross_entropy" in records[-1]:
        of_pairs = [record["val_nsp_cross_entropy"] for record in records]
        yield losses.next_sentence(done, of_pairs)
    if counts is not None:
        entropy = text.unigram_entropy(counts)
        warmup = options.num_steps("warmup_steps") if options.minutes is None else 0
        yield losses.slow_start(done, held_out[-1], entropy, warmup)
        yield losses.unigram_plateau(steps, held_out, entropy)


def _check_options(options: Options, config: BERTConfig) -> Found:
    is_pretraining = isinstance(options, PretrainingOptions)
    max_len = options.max_len or config.max_len
    if options.optimizer != "lamb" and options.lora is None:
        yield losses.learning_rate_for_batch(
            options.learning_rate,
            options.batch_size * (max_len if is_pretraining else _USUAL_LEN),
            config.num_hiddens,
            is_pretraining=is_pretraining,
        )
    if options.precision != "auto" and not tf.config.list_physical_devices("GPU"):
        sizes = (config.num_hiddens, config.ffn_num_hiddens, options.batch_size * max_len)
        speedup = statistics.median(bfloat16_speedup(*sizes) for _ in range(_MEASURED))
        yield speed.precision(options.precision, speedup)


def _check_text(store: TokenStore, counts: np.ndarray) -> Found:
    hashes = np.asarray(store.document_hashes)
    yield text.few_documents(store.num_documents)
    yield text.duplicate_documents(find_copies([hashes], len(hashes)))
    yield from _check_vocabulary(counts, store.tokenizer().vocab)


def _check_vocabulary(counts: np.ndarray, vocab: Vocab) -> Found:
    yield text.unknown_words(counts, vocab)
    yield text.pieces_per_word(counts, vocab)


def _check_examples(train: TaskExamples, dev: TaskExamples) -> Found:
    texts = _texts(train)
    yield labels.leak(texts, _texts(dev))
    if train.task in ("answer", "embed"):
        return
    yield labels.constant(_labels(train), "training data")
    yield labels.constant(_labels(dev), "development data")
    if isinstance(train, TextExamples) and train.task == "classify" and not train.multi_label:
        yield labels.unbalanced(train.label_counts())
        yield labels.contradictions(texts, _labels(train))


def _texts(examples: TaskExamples) -> list[tuple[Hashable, ...]]:
    """Return the texts of each example, without its label."""
    found = [getattr(examples, name) for name in examples.sequences[:-1]]
    return list(zip(*(values for values in found if values is not None), strict=True))


def _labels(examples: TaskExamples) -> list[Hashable]:
    """Return all labels: one per example, or one per word."""
    values = getattr(examples, examples.sequences[-1])
    if examples.task == "tag":
        return [label for of_words in values for label in of_words]
    return [tuple(label) if isinstance(label, list) else label for label in values]


def _check_batches(
    evidence: Evidence, model: BERTModel | TaskModel, dataset: tf.data.Dataset
) -> Found:
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(next(iter(dataset)))
    features = {name: np.asarray(value) for name, value in x.items()}
    vocab = None if model.tokenizer is None else model.tokenizer.vocab
    yield batches.padding(features, 0 if vocab is None else vocab.pad_id)
    if "pred_positions" in features:
        found = batches.predictions(features, _of_mlm(y), _of_mlm(sample_weight))
        mask = features.get("attention_mask")
        if mask is None or mask.ndim != 3:  # a causal mask hides the answers
            yield batches.mask_share(found)
            yield batches.visible_answers(found)
        if vocab is not None:
            yield batches.special_tokens(found, [vocab.cls_id, vocab.sep_id, vocab.pad_id])
    elif vocab is not None:
        yield from _check_vocabulary(_count_batch_ids(dataset, vocab), vocab)
    last = evidence.records[-1] if evidence.records else {}
    if last and evidence.store is not None and isinstance(evidence.options, PretrainingOptions):
        steps = max(last["step"], evidence.options.steps or 0)
        yield text.epochs(steps * np.sum(features["valid_lens"]), evidence.store.num_tokens)
    if evidence.may_train:
        of_batch, of_step = speed.time_batches(dataset), speed.time_step(model, next(iter(dataset)))
        yield speed.waiting_for_data(of_batch, of_step)


def _of_mlm(values: Any) -> Any:
    """Return the labels or the weights of the masked tokens."""
    found = values["mlm"] if isinstance(values, Mapping) else values
    return None if found is None else np.asarray(found)


def _count_batch_ids(dataset: tf.data.Dataset, vocab: Vocab) -> np.ndarray:
    """Return the counts of the ids in some batches, without special tokens other than `[UNK]`."""
    counts = np.zeros(len(vocab), np.int64)
    for batch in dataset.take(_COUNTED):
        counts += np.bincount(np.ravel(batch[0]["tokens"]), minlength=len(vocab))
    counts[[vocab.pad_id, vocab.cls_id, vocab.sep_id, vocab.mask_id]] = 0
    return counts


def _check_weights(model: BERTModel | TaskModel, before: Mapping[str, np.ndarray] | None) -> Found:
    after = weights.weights_of(model)
    yield weights.finite_weights(after)
    if before is not None:
        yield weights.frozen_weights(before, after)


def _check_gradients(
    evidence: Evidence, model: BERTModel | TaskModel, dataset: tf.data.Dataset
) -> Found:
    found = weights.examine(model, next(iter(dataset)))
    features = (batch[0] for batch in dataset.take(_COUNTED))
    chance = chance_of(model)
    if evidence.is_new is not None and chance is not None:
        yield losses.initial_loss(found.loss, chance, is_new=evidence.is_new)
    yield weights.gradient_norm(found)
    yield weights.unused_weights(found)
    yield weights.dead_units(weights.share_of_dead_units(model, features))
    yield weights.saturated_attention(found)
    options, policy = evidence.options, model.dtype_policy.name
    if (policy if options is None else options.precision) == "mixed_float16":
        yield weights.float16_range(found)


def chance_of(model: BERTModel | TaskModel) -> float | None:
    """Return the loss if all classes are equally likely, or `None` for other losses."""
    of_heads = model.loss if isinstance(model.loss, Mapping) else {"": model.loss}
    are_classes = all(type(loss) is WeightedCrossEntropy for loss in of_heads.values())
    if not are_classes or isinstance(model, QuestionAnswerer):
        return None
    return sum(math.log(number) for number in model.num_classes(model.max_row_len).values())
