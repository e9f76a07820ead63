"""Write the SavedModels and files in `tests/checkpoints/formats/originals/tensorflow_hub`.

They are written by the Model Garden's exporter for TensorFlow Hub, by `hub.KerasLayer` and by Keras
2, with random weights. What they answer is stored beside them. A `saved_model.pb` of a megabyte
keeps only the names of its operations; everything else in it is what the package never reads.
`build.sh` of this folder runs this script.
"""

import json
import pathlib
import random
import shutil
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401  # the operations of the preprocessing models
from official.legacy.bert import configs
from official.nlp.configs import encoders
from official.nlp.tools import export_tfhub_lib as exporter
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

FOLDER = pathlib.Path(__file__).parents[2] / "tests/checkpoints/formats/originals/tensorflow_hub"
TOKENS = """
    [PAD] [unused0] [UNK] [CLS] [SEP] [MASK] the a cat dog cafe film ##s ##ed ##ing is was good bad
    ! . , - ' un ##able x ##x 中 文 Cat café THE é
""".split()
# Without the characters that TensorFlow Text tokenizes unlike google-research/bert: those that NFKC
# changes, such as an ellipsis, in lowercased texts, and no-break spaces in others.
WORDS = """
    the The THE a A cat Cat CATS cats dogs cafe café Café CAFÉ cafes film films filmed filming is
    was Was good GOOD bad ! . , - ' un unable UNABLE x xx Xxx 中文 文 zebra é É cafe\u0301 don't
    bad!! good-bad ...x \t \u200b \u201cgood\u201d 1 2nd
""".split(" ")
SIZES = {"vocab_size": len(TOKENS), "hidden_size": 8, "num_attention_heads": 2}
OLD_SIZES = {"intermediate_size": 12, "max_position_embeddings": 16, "type_vocab_size": 2}
INPUTS = {
    "input_word_ids": [[3, 6, 8, 12, 4, 7, 9, 5, 4], [3, 7, 10, 4, 19, 4, 0, 0, 0]],
    "input_mask": [[1] * 9, [1] * 6 + [0] * 3],
    "input_type_ids": [[0, 0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0, 0, 0]],
}
POSITIONS = [[1, 7], [2, 5]]


def export(name: str, scratch: pathlib.Path, *, with_mlm: bool, lowercase: bool, **config) -> str:
    """Export an encoder with random weights, and store its answers."""
    rng = np.random.default_rng(len(name))
    _, model = exporter._create_model(with_mlm=with_mlm, **config)
    for weight in model.variables:
        weight.assign(rng.normal(0.1, 0.4, weight.shape))
    items = model.checkpoint_items if with_mlm else {"model": model, "encoder": model}
    path = tf.train.Checkpoint(**items).save(scratch / name)
    options = {"vocab_file": str(scratch / "vocab.txt"), "do_lower_case": lowercase}
    exporter.export_model(
        str(scratch / f"{name}_hub"),
        model_checkpoint_path=path,
        with_mlm=with_mlm,
        **options,
        **config,
    )
    encoder = hub.load(str(scratch / f"{name}_hub"))
    inputs = {key: tf.constant(value) for key, value in INPUTS.items()}
    outputs = dict(encoder(inputs))
    if with_mlm:
        outputs |= encoder.mlm({**inputs, "masked_lm_positions": tf.constant(POSITIONS)})
    names = ("sequence_output", "pooled_output", "mlm_logits")
    answers = {key: outputs[key].numpy() for key in names if key in outputs}
    np.savez(FOLDER / f"{name}.npz", mlm_positions=POSITIONS, **INPUTS, **answers)
    keep(scratch / f"{name}_hub", name)
    return str(scratch / f"{name}_hub")


def preprocessing(name: str, scratch: pathlib.Path, lines: list[str], *, lowercase: bool) -> str:
    """Export a preprocessing model, and store the token ids of the lines."""
    path = str(scratch / name)
    exporter.export_preprocessing(
        path,
        vocab_file=str(scratch / "vocab.txt"),
        do_lower_case=lowercase,
        tokenize_with_offsets=False,
        default_seq_length=9,
    )
    ids = hub.load(path).tokenize(tf.constant(lines)).merge_dims(1, 2).to_list()
    pairs = [{"text": text, "ids": ids} for text, ids in zip(lines, ids, strict=True)]
    (FOLDER / f"{name}.json").write_text(json.dumps(pairs))
    keep(path, name)
    return path


def keep(path: str | pathlib.Path, name: str) -> None:
    """Copy what the package reads of a SavedModel."""
    target = FOLDER / name
    shutil.copytree(
        path, target, ignore=shutil.ignore_patterns("fingerprint.pb", "keras_metadata*")
    )
    file = target / "saved_model.pb"
    stored, kept = SavedModel.FromString(file.read_bytes()), SavedModel()
    names = kept.meta_graphs.add().meta_info_def.stripped_op_list
    for operation in stored.meta_graphs[0].meta_info_def.stripped_op_list.op:
        names.op.add().name = operation.name
    file.write_bytes(kept.SerializeToString())


def fine_tuned(encoder: str, preprocessor: str) -> None:
    """Write the classifier of TensorFlow's tutorial, trained for a step."""
    layer = hub.KerasLayer(encoder, trainable=True, name="BERT_encoder")
    texts = tf.keras.layers.Input((), dtype=tf.string, name="text")
    outputs = layer(hub.KerasLayer(preprocessor, name="preprocessing")(texts))
    dropped = tf.keras.layers.Dropout(0.1)(outputs["pooled_output"])
    logits = tf.keras.layers.Dense(3, name="classifier")(dropped)
    model = tf.keras.Model(texts, logits)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.1), loss)
    model.fit(tf.constant(["the cat is good", "a dog"]), tf.constant([2, 1]), verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder, save_format="tf")
        keep(folder, "fine_tuned")
    outputs = layer({name: tf.constant(value) for name, value in INPUTS.items()})
    names = ("sequence_output", "pooled_output")
    np.savez(FOLDER / "fine_tuned.npz", **INPUTS, **{key: outputs[key].numpy() for key in names})


def main() -> None:
    """Write all files."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    tf.keras.utils.set_random_seed(0)
    rng = random.Random(0)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(200)]
    one_block = configs.BertConfig(num_hidden_layers=1, **SIZES, **OLD_SIZES)
    two_blocks = configs.BertConfig(num_hidden_layers=2, **SIZES, **OLD_SIZES)
    new = encoders.EncoderConfig(type="bert")
    new.bert.override({"num_layers": 1, "intermediate_size": 12, **SIZES})
    new.bert.override({"max_position_embeddings": 16, "type_vocab_size": 2})
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        (scratch / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
        uncased = preprocessing("uncased_preprocess", scratch, lines, lowercase=True)
        preprocessing("cased_preprocess", scratch, lines, lowercase=False)
        encoder = export("with_mlm", scratch, bert_config=one_block, with_mlm=True, lowercase=True)
        export("encoder", scratch, bert_config=two_blocks, with_mlm=False, lowercase=False)
        export("expert", scratch, encoder_config=new, with_mlm=True, lowercase=True)
        fine_tuned(encoder, uncased)


if __name__ == "__main__":
    main()
