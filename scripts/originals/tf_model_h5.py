"""Write `tests/checkpoints/formats/originals/tf_model_h5.zip` by transformers 4 in TensorFlow.

The archive contains small random models, each in the way in which a program saves it, and
`outputs.npz` with the outputs of each. `build.sh` of this folder runs this script.
"""

import os
import pathlib
import random
import shutil
import tempfile
import zipfile

import h5py
import ktrain
import numpy as np
import tensorflow as tf
import transformers

ARCHIVE = pathlib.Path(__file__).parents[2] / "tests/checkpoints/formats/originals/tf_model_h5.zip"
WORDS = (
    "the a dog cat owl sees hears finds hare bird mouse café . , ! ##s ##ing ##er un ##do".split()
)
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
LETTERS = [*WORDS, "Dogs", "Café", "undoing", "FINDER", "owl,cat", "x", "中", "e\u0301", "\t"]
LABELS = {0: "bad", 1: "good", 2: "neither"}
INPUTS = {
    "input_ids": np.array([[2, 5, 7, 9, 3, 8, 20, 3], [2, 6, 23, 3, 11, 3, 0, 0]], "int32"),
    "token_type_ids": np.array([[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0, 0]], "int32"),
    "attention_mask": np.array([[1] * 8, [1] * 6 + [0] * 2], "int32"),
}
CLASSES = {
    "model": "Model",
    "pretraining": "ForPreTraining",
    "masked-lm": "ForMaskedLM",
    "next-sentence": "ForNextSentencePrediction",
    "classification": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
    "answering": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
OUTPUTS: dict[str, np.ndarray] = {}


def config(**options) -> transformers.BertConfig:
    """Return the configuration of all models."""
    return transformers.BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        layer_norm_eps=1e-6,
        **options,
    )


def randomize(model: tf.keras.Model) -> None:
    """Give a model weights of which no two are equal."""
    generator = np.random.default_rng(len(OUTPUTS))
    for weight in model.weights:
        weight.assign(generator.normal(0.1, 0.4, weight.shape))


def original(name: str, **options) -> tf.keras.Model:
    """Return a model of transformers with random weights."""
    model = getattr(transformers, f"TFBert{CLASSES[name]}")(config(**options))
    inputs = INPUTS
    if name == "choice":  # the two rows are two choices of one example
        inputs = {key: value[None] for key, value in INPUTS.items()}
    model(inputs)
    randomize(model)
    return model


def record(folder: str, outputs: dict) -> None:
    """Keep the outputs of the model in a folder."""
    for key, value in outputs.items():
        OUTPUTS[f"{folder}/{key}"] = np.asarray(value)


def run(model: tf.keras.Model) -> dict:
    """Return the outputs of a model of transformers."""
    inputs = INPUTS
    if model.name.startswith("tf_bert_for_multiple_choice"):
        inputs = {key: value[None] for key, value in INPUTS.items()}
    return dict(model(inputs))


def write_classes(path: pathlib.Path) -> None:
    """Write a model of each class, and models in shards and with other shapes."""
    for name in CLASSES:
        labels = {"id2label": LABELS, "label2id": {label: id for id, label in LABELS.items()}}
        options = labels if name in ("classification", "tagging") else {}
        model = original(name, **options)
        record(name, run(model))
        model.save_pretrained(path / name)
    model = original("pretraining")
    record("shards", run(model))
    model.save_pretrained(path / "shards", max_shard_size="4KB")
    record("safetensors", run(model))
    model.save_pretrained(path / "safetensors", safe_serialization=True)
    write_heads_apart(path / "heads-apart", path / "model/tf_model.h5")


def write_heads_apart(folder: pathlib.Path, file: pathlib.Path) -> None:
    """Write the shapes of transformers 4.2 to 4.4, which version 4.44 reshapes when it loads."""
    config().save_pretrained(folder)
    shutil.copy(file, folder)
    with h5py.File(folder / "tf_model.h5", "r+") as opened:
        names: list[str] = []
        opened.visit(names.append)
        for name in names:
            _, _, layer = name.partition("/attention/")
            if layer.endswith(":0") and "LayerNorm" not in layer:
                array = opened[name][()]
                heads = (2, 4, 8) if "output" in layer else (*array.shape[:-1], 2, 4)
                is_kept = layer == "output/dense/bias:0"
                del opened[name]
                opened[name] = array if is_kept else array.reshape(heads)
    record(folder.name, run(transformers.TFBertModel.from_pretrained(folder)))


class Subclass(tf.keras.Model):
    """A model of one's own that holds a `TFBertModel`."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = transformers.TFBertModel(config(), name="my_encoder")
        self.classifier = tf.keras.layers.Dense(3)

    def call(self, inputs: dict) -> tf.Tensor:
        return self.classifier(self.encoder(inputs).pooler_output)


def write_own(path: pathlib.Path) -> None:
    """Write Keras models around a `TFBertModel`: their weights, and a whole model."""
    bert = original("model")
    inputs = {key: tf.keras.Input([None], dtype="int32", name=key) for key in INPUTS}
    dense = tf.keras.layers.Dense(3, name="classifier")
    functional = tf.keras.Model(inputs, dense(bert(inputs).pooler_output))
    functional.compile("adam", "mse")
    functional.fit(INPUTS, np.ones((2, 3)), verbose=0)
    main = tf.keras.Model(inputs, dense(bert.bert(inputs).pooler_output))
    subclass = Subclass()
    subclass(INPUTS)
    randomize(subclass)
    for name, model, encoder in (
        ("own-functional", functional, bert),
        ("own-main-layer", main, bert),
        ("own-subclass", subclass, subclass.encoder),
    ):
        config().save_pretrained(path / name)
        record(name, run(encoder))
        model.save_weights(path / name / "tf_model.h5")
    config().save_pretrained(path / "own-whole")
    record("own-whole", run(bert))
    main.compile("adam", "mse")
    main.fit(INPUTS, np.ones((2, 3)), verbose=0)
    record("own-whole", run(bert))
    main.save(path / "own-whole/tf_model.h5", save_format="h5")


def write_ktrain(path: pathlib.Path) -> None:
    """Write the folders of a learner and of a predictor of ktrain."""
    base = pathlib.Path("base")  # its path is part of what ktrain writes
    original("model").save_pretrained(base)
    write_tokenizer(base)
    texts, labels = ["the dog sees", "a cat finds the mouse"] * 4, ["good", "bad"] * 4
    text = ktrain.text.Transformer(str(base), maxlen=16, class_names=["bad", "good"])
    data = text.preprocess_train(texts, labels, verbose=0)
    model = text.get_classifier()
    learner = ktrain.get_learner(model, train_data=data, batch_size=4)
    learner.fit(1e-3, 1, verbose=0)
    randomize(model)
    record("ktrain-learner", run(model))
    record("ktrain-predictor", run(model))
    learner.save_model(str(path / "ktrain-learner"))
    ktrain.get_predictor(model, text).save(str(path / "ktrain-predictor"))
    shutil.rmtree(base)


def write_tokenizer(folder: pathlib.Path) -> None:
    """Write the files of a tokenizer, and the ids of 200 texts."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=16)
    tokenizer.save_pretrained(folder)
    chosen = random.Random(0)
    texts = [" ".join(chosen.choices(LETTERS, k=chosen.randrange(9))) for _ in range(200)]
    ids = [" ".join(map(str, tokenizer(text).input_ids)) for text in texts]
    OUTPUTS.update(texts=np.array(texts), ids=np.array(ids))


def main() -> None:
    """Write the archive."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        os.chdir(folder)
        tf.keras.utils.set_random_seed(0)
        write_classes(path)
        write_tokenizer(path / "classification")
        write_own(path)
        write_ktrain(path)
        np.savez(path / "outputs.npz", **INPUTS, **OUTPUTS)
        with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_LZMA) as archive:
            for file in sorted(path.rglob("*")):
                if file.is_file():
                    entry = zipfile.ZipInfo(file.relative_to(path).as_posix())  # without a time
                    archive.writestr(entry, file.read_bytes(), zipfile.ZIP_LZMA)


if __name__ == "__main__":
    main()
