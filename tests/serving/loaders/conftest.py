"""Requests to all signatures of the exported models and the expected outputs."""

import json
import typing

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.answer.predictions import answer as find_answers
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.classify.predictions import classify
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.regress.predictions import regress
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from keras_bert_d2l.tasks.tag.predictions import tag

MAX_LEN, TOP_K = 24, 3  # as in the exported models
TEXTS = (
    "red [MASK]",
    "",
    "[MASK] blue [MASK]ish green",
    "Reddish, green",
    "Ünïcödé 日本 🙂\tblue [SEP] \x7f",
    "red green " * 12 + "[MASK]",
)
QUESTIONS = ("red green", "blue ?", "red " * 9 + "green")
CONTEXTS = ("Reddish, green " * 20 + "e\u0301 blue.", "Ünïcödé 日本 🙂 blue", "red")
REPEATS, FEWER_REPEATS = 200, 20  # concurrent requests to the pretraining model, and to the others
TOLERANCE = 1e-5


class Served(typing.NamedTuple):
    """An exported model: folder, requests (signature, arrays by name) and expected outputs."""

    folder: typing.Any
    requests: list
    expected: list


@pytest.fixture(scope="session")
def requests(tokenizer):
    """Requests to every signature with several batch sizes: (signature, arrays by name)."""
    batches = [as_array(TEXTS), as_array([]), *(as_array([text]) for text in TEXTS[:3])]
    requests = []
    for text in batches:
        for signature in ("serving_default", "embed", "fill_mask"):
            requests.append((signature, {"text": text}))
        requests.append(("nsp", {"text": text, "text_b": text[::-1]}))
        requests.append(("tf_example", {"examples": as_examples(text=text)}))
        tokens = {name: tensor.numpy() for name, tensor in batch_of(tokenizer, text).items()}
        for num_predictions in (0, 2):
            positions = np.tile(np.int32([1, 0]), (len(text), 1))[:, :num_predictions]
            requests.append(("tokens", {**tokens, "pred_positions": positions}))
    return requests


@pytest.fixture(scope="session")
def expected(model, tokenizer, requests):
    """Return the original model's outputs for `requests`."""
    return [answer(model, tokenizer, *request) for request in requests]


@pytest.fixture(scope="session")
def served_models(exported, requests, expected, task_models, task_folders, tokenizer):
    """All exported models as `Served` by name."""
    served = {"BERT": Served(exported, requests, expected)}
    for name, model in task_models.items():
        of_task = task_requests(model, tokenizer)
        answers = [task_answer(model, tokenizer, *request) for request in of_task]
        served[name] = Served(task_folders[name], of_task, answers)
    return served


@pytest.fixture(scope="session")
def questions_file(served_models, tmp_path_factory):
    """Write the requests in the format that ask.py reads."""
    questions = {
        name: {
            "folder": str(served.folder),
            "repeats": REPEATS if name == "BERT" else FEWER_REPEATS,
            "requests": [
                [signature, {name: as_json(array) for name, array in inputs.items()}]
                for signature, inputs in served.requests
            ],
        }
        for name, served in served_models.items()
    }
    path = tmp_path_factory.mktemp("requests") / "questions.json"
    path.write_text(json.dumps(questions), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def assert_answers(served_models):
    """A function that checks the outputs of a model and prints a table of the differences.

    Each line lists the loader, model, signature, number of requests and largest difference
    between floats. Strings, integers and booleans must be equal.
    """

    def assert_answers(name, answers, loader):
        _, requests, expected = served_models[name]
        found = {signature: [] for signature, _ in requests}
        for (signature, _), given, right in zip(requests, answers, expected, strict=True):
            found[signature].append(largest_difference(given, right, (name, signature)))
        for signature, of_signature in found.items():
            largest = f"{max(of_signature):.1e}"
            print(f"{loader:14} {name:20} {signature:16} {len(of_signature):3} {largest}")

    return assert_answers


def largest_difference(given, right, where):
    assert given.keys() == right.keys(), where
    largest = 0.0
    for name, array in right.items():
        assert given[name].shape == array.shape, (*where, name)
        if array.dtype != np.float32:
            np.testing.assert_array_equal(given[name], array, f"{where} {name}")
        elif array.size:
            difference = float(np.abs(given[name] - array).max())
            assert difference <= TOLERANCE, (*where, name, difference)
            largest = max(largest, difference)
    return largest


def task_requests(model, tokenizer):
    """Return requests to every signature of a task model with several batch sizes."""
    texts = CONTEXTS if isinstance(model, QuestionAnswerer) else TEXTS
    if isinstance(model, TokenClassifier):
        texts = [text for text in texts if len(text) < 50]  # `tag` splits longer texts
    requests = []
    for batch in (texts, [], texts[:1], texts[2:3]):
        text = as_array(batch)
        inputs = dict.fromkeys(names_of(model), text)
        if "text_b" in inputs:
            inputs["text_b"] = text[::-1]
        if "question" in inputs:
            inputs["question"] = as_array(QUESTIONS[: len(batch)])
        examples = "inputs" if isinstance(model, METHODS) else "examples"
        requests += [
            ("serving_default", inputs),
            *([("embed", {"text": text})] if isinstance(model, TextEmbedder) else []),
            ("tf_example", {examples: as_examples(**inputs)}),
            ("tokens", {name: x.numpy() for name, x in batch_of(tokenizer, text).items()}),
        ]
    return requests


def names_of(model):
    """Return the names of the exported model's string inputs."""
    if isinstance(model, QuestionAnswerer):
        return ("question", "context")
    # Among the `task_models`, the multi-label model is exported for pairs.
    return ("text", "text_b") if getattr(model, "multi_label", False) else ("text",)


def task_answer(model, tokenizer, signature, inputs):
    """Return the expected outputs, from the model and the functions in `inference`."""
    if signature == "tokens":
        outputs = model(inputs)
        if not isinstance(outputs, dict):
            outputs = {"embedding" if isinstance(model, TextEmbedder) else "logits": outputs}
        return {name: output.numpy() for name, output in outputs.items()}
    if signature == "embed":
        return embedding(model, tokenizer, inputs["text"])
    if signature == "serving_default":
        return TASK_ANSWERS[type(model)](model, tokenizer, *inputs.values())
    (examples,) = inputs.values()
    whole = task_answer(model, tokenizer, "serving_default", strings_of(examples, names_of(model)))
    if isinstance(model, SequenceClassifier):
        return {"classes": whole["labels"], "scores": whole["scores"]}
    return {"outputs": whole["scores"][:, 0]} if isinstance(model, SequenceRegressor) else whole


def labels_answer(model, tokenizer, *texts):
    found = classify(model, *map(as_strings, texts))
    shape = (len(found), len(model.labels))
    answer = {
        "labels": np.tile(as_array(model.labels), (len(found), 1)),
        "scores": np.float32([list(one.scores.values()) for one in found]).reshape(shape),
        "truncated": needed(tokenizer, *texts) > MAX_LEN,
    }
    if model.multi_label:
        has = [[name in one.labels for name in model.labels] for one in found]
        return {**answer, "is_label": np.array(has, bool).reshape(shape)}
    return {
        **answer,
        "label": as_array([one.label for one in found]),
        "score": np.float32([one.score for one in found]),
        "id": np.int32([model.labels.index(one.label) for one in found]),
    }


def scores_answer(model, tokenizer, *texts):
    found = regress(model, *map(as_strings, texts))
    return {
        "labels": np.tile(as_array(model.labels), (len(found), 1)),
        "scores": np.float32([[one.score] for one in found]).reshape(len(found), 1),
        "truncated": needed(tokenizer, *texts) > MAX_LEN,
    }


def words_answer(model, tokenizer, text):
    found = [tag(model, one) for one in as_strings(text)]
    columns = {
        "words": [[one.word.encode() for one in row] for row in found],
        "labels": [[one.label.encode() for one in row] for row in found],
        "scores": [[one.score for one in row] for row in found],
        "ids": [[model.labels.index(one.label) for one in row] for row in found],
        "starts": [[one.start for one in row] for row in found],
        "ends": [[one.end for one in row] for row in found],
    }
    width = max(map(len, found), default=0)
    truncated = np.zeros(len(text), bool)
    return {name: padded(rows, width) for name, rows in columns.items()} | {"truncated": truncated}


def spans_answer(model, tokenizer, question, context):
    pairs = zip(as_strings(question), as_strings(context), strict=True)
    found = [find_answers(model, *pair, top_k=TOP_K) for pair in pairs]
    columns = {
        "answers": [[one.text.encode() for one in row] for row in found],
        "scores": [[one.score for one in row] for row in found],
        "starts": [[one.start for one in row] for row in found],
        "ends": [[one.end for one in row] for row in found],
    }
    dense = {name: padded(rows, TOP_K) for name, rows in columns.items()}
    return {
        **dense,
        **{name.removesuffix("s"): array[:, 0] for name, array in dense.items()},
        "null_score": np.float32([row[0].null_margin for row in found]),
        "truncated": np.zeros(len(found), bool),
    }


def embedding(model, tokenizer, text):
    batch = {name: tensor.numpy() for name, tensor in batch_of(tokenizer, text).items()}
    return {"embedding": model(batch).numpy(), "truncated": needed(tokenizer, text) > MAX_LEN}


METHODS = (SequenceClassifier, SequenceRegressor)  # tasks with a TensorFlow Serving method
TASK_ANSWERS = {
    SequenceClassifier: labels_answer,
    SequenceRegressor: scores_answer,
    TokenClassifier: words_answer,
    QuestionAnswerer: spans_answer,
    TextEmbedder: embedding,
}


def padded(rows, width):
    """Convert rows to one array, padded with empty strings or zeros."""
    example = next((value for row in rows for value in row), b"")
    nothing, dtype = {bytes: (b"", object), float: (0, "float32"), int: (0, "int32")}[type(example)]
    rows = [[*row, *[nothing] * (width - len(row))] for row in rows]
    return np.array(rows, dtype).reshape(len(rows), width)


def strings_of(examples, names):
    """Parse the strings of serialized examples by name."""
    parsed = [tf.train.Example.FromString(one).features.feature for one in examples]
    values = {name: [one[name].bytes_list.value[0] for one in parsed] for name in names}
    return {name: np.array(value, object) for name, value in values.items()}


def as_array(texts):
    return np.array([text.encode() for text in texts], object)


def as_strings(array):
    return [value.decode() for value in array]


def as_examples(**strings):
    rows = zip(*strings.values(), strict=True)
    return np.array([example(dict(zip(strings, row, strict=True))) for row in rows], object)


def example(strings):
    feature = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        for name, value in strings.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def as_json(array):
    values = array.ravel().tolist()
    if array.dtype != object:
        return [array.dtype.name, array.shape, values]
    return ["string", array.shape, [value.decode("latin-1") for value in values]]


def batch_of(tokenizer, text, text_b=None):
    """Return a batch padded to the maximum length, unlike the batches of the signatures."""
    pair = None if text_b is None else tf.constant(text_b, tf.string)
    return tokenizer(tf.constant(text, tf.string), pair, max_len=MAX_LEN)


def answer(model, tokenizer, signature, inputs):
    """Return the expected outputs of a signature, computed in NumPy from the model's outputs."""
    if signature == "tokens":
        encoded, mlm_logits, nsp_logits = (tensor.numpy() for tensor in model(**inputs))
        pooled = model.hidden(encoded[:, 0]).numpy()
        outputs = {"encoded": encoded, "mlm_logits": mlm_logits, "nsp_logits": nsp_logits}
        return {**outputs, "pooled": pooled, "embedding": unit_means(encoded, inputs)}
    if signature == "tf_example":
        inputs = strings_of(inputs["examples"], ("text",))
    text, text_b = inputs["text"], inputs.get("text_b")
    batch = {name: tensor.numpy() for name, tensor in batch_of(tokenizer, text, text_b).items()}
    truncated = needed(tokenizer, text, text_b) > MAX_LEN
    if signature == "fill_mask":
        return {**filled(model, tokenizer, batch), "truncated": truncated}
    encoded, _, nsp_logits = model(**batch)
    encoded = encoded.numpy()
    outputs = {
        "embedding": unit_means(encoded, batch),
        "nsp": softmax(nsp_logits.numpy()),
        "pooled": model.hidden(encoded[:, 0]).numpy(),
    }
    kept = {"embed": ("embedding",), "nsp": ("nsp",)}.get(signature, tuple(outputs))
    return {"truncated": truncated, **{name: outputs[name] for name in kept}}


def unit_means(encoded, batch):
    lengths = batch["valid_lens"]
    rows = [row[:length].mean(axis=0) for row, length in zip(encoded, lengths, strict=True)]
    rows = [row / np.linalg.norm(row) for row in rows]
    return np.float32(rows).reshape(len(lengths), encoded.shape[2])


def needed(tokenizer, text, text_b=None):
    """Return the number of tokens per row before truncation."""
    lengths = tokenizer.tokenize(text).row_lengths().numpy() + 2
    return lengths if text_b is None else lengths + tokenizer.tokenize(text_b).row_lengths() + 1


def filled(model, tokenizer, batch):
    masks = [np.flatnonzero(row == tokenizer.vocab.mask_id) for row in batch["tokens"]]
    shape = (len(masks), max(map(len, masks), default=0))
    positions = np.zeros(shape, np.int32)
    for row, places in enumerate(masks):
        positions[row, : len(places)] = places
    probabilities = softmax(model(**batch, pred_positions=positions)[1].numpy())
    ids = np.argsort(-probabilities, axis=-1)[..., :TOP_K].astype(np.int32)
    scores = np.take_along_axis(probabilities, ids, axis=-1)
    tokens = np.array([token.encode() for token in tokenizer.vocab.tokens])[ids]
    is_there = (positions > 0)[..., None]
    return {
        "tokens": np.where(is_there, tokens, b""),
        "scores": np.where(is_there, scores, np.float32(0)),
        "ids": np.where(is_there, ids, np.int32(0)),
        "positions": positions,
    }


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
