"""Exports a model as a SavedModel and asks it from a process that does not know this package.

    python examples/03_export_and_call.py [CHECKPOINT]

CHECKPOINT is a folder that `save_pretrained` wrote, such as `best/` in the folder of a pretraining
run. Without it a tiny model is pretrained first, on docstrings and for too short a time to know
much about them.
"""

import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # keeps TensorFlow's start-up chatter out

import keras_bert_d2l as kb

TINY_RUN = pathlib.Path("runs/tiny")
SAVED_MODELS = pathlib.Path("saved_models/tiny")
QUESTIONS = (
    "returns a [MASK] of the same shape as the input .",
    "if true , the [MASK] is computed along the last axis .",
)

# All that a client needs; TensorFlow Serving gives the same answers from the same folder.
CLIENT = """
import sys
import tensorflow as tf
import tensorflow_text  # registers the ops of the tokenizer

folder, *questions = sys.argv[1:]
model = tf.saved_model.load(folder)
text = tf.constant(questions)

answer = model.signatures["fill_mask"](text=text)
for question, tokens, scores in zip(questions, answer["tokens"].numpy(), answer["scores"].numpy()):
    print(question)
    for token, score in zip(tokens[0], scores[0]):  # of the first mask
        print(f"    {score:.3f}  {token.decode()}")

vectors = tf.math.l2_normalize(model.signatures["serving_default"](text=text)["embedding"], axis=1)
print(f"cosine of the two texts: {tf.tensordot(vectors[0], vectors[1], 1):.3f}")
"""


def tiny_checkpoint() -> pathlib.Path:
    checkpoint = TINY_RUN / "best"
    if not checkpoint.exists():
        kb.pretrain(
            "docstrings",
            TINY_RUN,
            vocab_size=2000,
            preset="tiny",
            steps=200,
            max_len=64,
            evaluate_every=100,
        )
    return checkpoint


def main() -> None:
    checkpoint = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else tiny_checkpoint()
    model, tokenizer, _ = kb.load_pretrained(checkpoint)
    version = kb.export_saved_model(model, SAVED_MODELS, tokenizer)
    print(f"Exported {checkpoint} to {version}. A process without keras_bert_d2l asks it:")
    subprocess.run([sys.executable, "-c", CLIENT, version, *QUESTIONS], check=True)


if __name__ == "__main__":
    main()
