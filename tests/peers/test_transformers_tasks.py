"""Task models exchanged with transformers in both directions give equal outputs and losses."""

import numpy as np
import pytest

from keras_bert_d2l import BERTConfig, BERTModel, load_pretrained, save_pretrained
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.choose.model import MultipleChoice
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from tests.checkpoints.small import TWO_BLOCKS

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")

SIZE, LENGTH, NAMES = 4, 7, ["x", "y", "z"]
CONFIG = BERTConfig.preset("huggingface", vocab_size=30, max_len=12, **TWO_BLOCKS)
RNG = np.random.default_rng(0)
BATCH = {
    "tokens": RNG.integers(0, 30, (SIZE, LENGTH), "int32"),
    "segments": RNG.integers(0, 2, (SIZE, LENGTH), "int32"),
    "valid_lens": np.array([7, 3, 5, 6], "int32"),
}
CHOICES = {name: x.reshape(2, 2, *x.shape[1:]) for name, x in BATCH.items()}
MULTI = "multi_label_classification"
TASKS = {  # our class, their class, and labels for both
    "one label": (
        lambda bert: SequenceClassifier(bert, NAMES),
        ("BertForSequenceClassification", "single_label_classification"),
        RNG.integers(0, 3, SIZE),
    ),
    "several labels": (
        lambda bert: SequenceClassifier(bert, NAMES, multi_label=True),
        ("BertForSequenceClassification", MULTI),
        RNG.integers(0, 2, (SIZE, 3)).astype("float32"),
    ),
    "scores": (
        lambda bert: SequenceRegressor(bert, NAMES),
        ("BertForSequenceClassification", "regression"),
        RNG.normal(size=(SIZE, 3)).astype("float32"),
    ),
    "tags": (
        lambda bert: TokenClassifier(bert, NAMES),
        ("BertForTokenClassification", None),
        np.where(RNG.random((SIZE, LENGTH)) < 0.4, -100, RNG.integers(0, 3, (SIZE, LENGTH))),
    ),
    "answers": (
        QuestionAnswerer,
        ("BertForQuestionAnswering", None),
        {"start": RNG.integers(0, 3, SIZE), "end": RNG.integers(3, 7, SIZE)},
    ),
    "choices": (MultipleChoice, ("BertForMultipleChoice", None), np.array([1, 0])),
}
WITH_NAMES = {"one label", "several labels", "scores", "tags"}


def assert_equal_outputs_and_losses(ours, theirs, labels):
    batch = CHOICES if isinstance(ours, MultipleChoice) else BATCH
    mask = np.arange(LENGTH) < batch["valid_lens"][..., None]
    if isinstance(labels, dict):
        given = {f"{side}_positions": torch.tensor(label) for side, label in labels.items()}
    else:
        given = {"labels": torch.tensor(labels)}
    with torch.no_grad():
        expected = theirs.eval()(
            input_ids=torch.tensor(batch["tokens"]).long(),
            token_type_ids=torch.tensor(batch["segments"]).long(),
            attention_mask=torch.tensor(mask),
            output_hidden_states=True,
            **given,
        )
    if batch is CHOICES:
        outputs = ours(CHOICES)
    else:
        features = {name: BATCH[name] for name in ("tokens", "segments")}
        states = ours(**features, attention_mask=mask, return_hidden_states=True)
        for actual, hidden in zip(states["hidden_states"], expected["hidden_states"], strict=True):
            np.testing.assert_allclose(actual, hidden.numpy(), rtol=0, atol=1e-5)
        outputs = states["output"]
    pairs = (
        [(outputs[side], expected[f"{side}_logits"]) for side in ("start", "end")]
        if isinstance(outputs, dict)
        else [(outputs, expected["logits"])]
    )
    for actual, logits in pairs:
        np.testing.assert_allclose(actual, logits.numpy(), rtol=0, atol=1e-5)
    ours.compile(run_eagerly=True)
    loss = ours.evaluate(batch, labels, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(float(expected["loss"]), abs=1e-5)


@pytest.mark.parametrize("name", TASKS)
def test_transformers_loads_our_task_models(name, tmp_path):
    make, (architecture, problem), labels = TASKS[name]
    ours = make(BERTModel.from_bert_config(CONFIG))
    rng = np.random.default_rng(0)
    for weight in named_weights(ours).values():
        weight.assign(rng.normal(0.1, 0.2, weight.shape))
    save_pretrained(ours, tmp_path / "task", format="huggingface")
    theirs, info = getattr(transformers, architecture).from_pretrained(
        tmp_path / "task", output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], kind
    if name in WITH_NAMES:
        assert theirs.config.id2label == dict(enumerate(NAMES))
        assert theirs.config.problem_type == problem
    assert_equal_outputs_and_losses(ours, theirs, labels)


@pytest.mark.parametrize("name", TASKS)
def test_we_load_task_models_of_transformers(name, tmp_path):
    make, (architecture, problem), labels = TASKS[name]
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=12,
        initializer_range=0.2,
        id2label=dict(enumerate(NAMES if name in WITH_NAMES else NAMES[:2])),
        problem_type=problem,
        classifier_dropout=0.3,
    )
    theirs = getattr(transformers, architecture)(config)
    theirs.save_pretrained(tmp_path)
    ours = load_pretrained(tmp_path).model
    assert type(ours) is type(make(BERTModel.from_bert_config(CONFIG)))
    if name in WITH_NAMES:
        assert ours.labels == tuple(NAMES)
        assert ours.task_config()["dropout"] == 0.3
    assert_equal_outputs_and_losses(ours, theirs, labels)
