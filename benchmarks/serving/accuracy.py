"""Compare the predictions and embeddings of all exported forms with those of Keras in float32.

    python -m benchmarks.serving.accuracy --classifier runs/sst2 --embedder all-MiniLM-L6-v2 \
        --dev dev.tsv

Accuracy is that of the classifier on the development data; the cosines are between the embeddings
of the same texts. `ms` is the CPU time per text, the median over batches.
"""

import argparse
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.runner import ENVIRONMENT, print_report

os.environ |= ENVIRONMENT
import keras
import onnxruntime
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.models.tasks.task_model import TaskModel

BATCH_SIZE = 8
Predict = Callable[[list[str]], np.ndarray]


def forms(model: TaskModel, folder: Path) -> Iterator[tuple[str, Predict]]:
    """Export a model in every form. Yield the name of each and a function from texts to outputs.

    The outputs are the probabilities of a classifier or the embeddings of an embedder.
    """
    classifies = isinstance(model, kb.SequenceClassifier)

    def keras_model(texts: list[str]) -> np.ndarray:
        outputs = model(model.tokenizer(texts))
        return np.asarray(keras.ops.softmax(outputs) if classifies else outputs)

    yield "Keras, float32", keras_model
    yield "SavedModel, float32", saved_model(kb.export_saved_model(model, folder / "saved"))
    session = onnx_model(model, kb.export_onnx(model, folder / "onnx"))
    yield "ONNX, float32", session
    yield "ONNX, int8", onnx_model(model, kb.export_onnx(model, folder / "int8", int8=True))
    if importlib.util.find_spec("openvino"):
        yield "ONNX, float32 in OpenVINO's bfloat16", openvino_model(model, folder / "onnx")


def saved_model(path: Path) -> Predict:
    loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures["serving_default"]

    def predict(texts: list[str], loaded: object = loaded) -> np.ndarray:  # keeps it alive
        outputs = signature(text=tf.constant(texts))
        return outputs["scores" if "scores" in outputs else "embedding"].numpy()

    return predict


def onnx_model(model: TaskModel, file: Path) -> Predict:
    session = onnxruntime.InferenceSession(str(file))
    names = [one.name for one in session.get_inputs()]  # some relatives have no segments

    def run(name: str, batch: dict[str, np.ndarray]) -> np.ndarray:
        return session.run([name], {key: batch[key] for key in names if key in batch})[0]

    return _from_token_ids(model, run)


def openvino_model(model: TaskModel, folder: Path) -> Predict:
    import openvino

    compiled = openvino.compile_model(folder / "model.onnx", "CPU")
    names = {name for one in compiled.inputs for name in one.names}

    def run(name: str, batch: dict[str, np.ndarray]) -> np.ndarray:
        return compiled({key: batch[key] for key in names if key in batch})[name]

    return _from_token_ids(model, run)


def _from_token_ids(model: TaskModel, run: Callable[..., np.ndarray]) -> Predict:
    def predict(texts: list[str]) -> np.ndarray:
        rows = {name: x.numpy() for name, x in model.tokenizer(texts).items()}
        mask = np.arange(rows["tokens"].shape[1]) < rows["valid_lens"][:, None]
        batch = {
            "input_ids": np.int64(rows["tokens"]),
            "attention_mask": np.int64(mask),
            "token_type_ids": np.int64(rows["segments"]),
        }
        if isinstance(model, kb.SequenceClassifier):
            return np.asarray(keras.ops.softmax(run("logits", batch)))
        return run("sentence_embedding", batch)

    return predict


def outputs_of(model: TaskModel, texts: list[str]) -> dict[str, tuple[np.ndarray, float]]:
    """Return the outputs for all texts by form, and the milliseconds of CPU time per text."""
    parts = [texts[i : i + BATCH_SIZE] for i in range(0, len(texts), BATCH_SIZE)]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, predict in forms(model, Path(folder)):
            outputs, seconds = [], []
            for part in parts:
                start = time.process_time()
                outputs.append(predict(part))
                seconds.append((time.process_time() - start) / len(part))
            found[name] = np.concatenate(outputs), 1e3 * float(np.median(seconds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classifier", type=Path, required=True, help="a fine-tuned checkpoint")
    parser.add_argument("--embedder", type=Path, help="a checkpoint like MiniLM")
    parser.add_argument("--dev", type=Path, required=True, help="labeled texts to predict")
    options = parser.parse_args()
    dev = read_examples("classify", options.dev)
    texts = list(dev.texts)
    classifier, _, _ = kb.load_pretrained(options.classifier)
    labels = np.array([classifier.labels.index(label) for label in dev.labels])
    scores = outputs_of(classifier, texts)
    embeddings = {}
    if options.embedder:
        embedder = kb.TextEmbedder(kb.load_pretrained(options.embedder).model)
        embeddings = {name: x for name, (x, _) in outputs_of(embedder, texts).items()}
    first, *_ = scores
    in_keras, _ = scores[first]
    rows = []
    for form, (of_form, milliseconds) in scores.items():
        found = of_form.argmax(-1)
        differences = abs(of_form - in_keras).max(-1)
        row = {
            "form": form,
            "accuracy": float((found == labels).mean()),
            "same_label": float((found == in_keras.argmax(-1)).mean()),
            "mean_difference": float(differences.mean()),
            "max_difference": float(differences.max()),
            "ms": milliseconds,
        }
        if embeddings:  # which have length 1
            cosines = (embeddings[form] * embeddings[first]).sum(-1)
            row |= {"mean_cosine": float(cosines.mean()), "min_cosine": float(cosines.min())}
        rows.append(row)
    columns = dict.fromkeys(rows[0], ".4f") | {"form": "", "ms": ".2f"}
    print_report([rows], columns)


if __name__ == "__main__":
    main()
