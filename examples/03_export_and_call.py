"""Export a SavedModel and call it from a process that does not import this package.

    python examples/03_export_and_call.py [CHECKPOINT]

CHECKPOINT is a folder written by `save_pretrained`, such as `best/` in a pretraining run folder. By
default, a tiny model is first pretrained on docstrings, too briefly for good predictions.
"""

import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # hide TensorFlow's start-up messages

import keras_bert_d2l as kb

TINY_RUN = pathlib.Path("runs/tiny")
SAVED_MODELS = pathlib.Path("saved_models/tiny")
QUESTIONS = (
    "returns a [MASK] of the same shape as the input .",
    "if true , the [MASK] is computed along the last axis .",
)

# A complete client. TensorFlow Serving returns the same outputs from the same folder.
CLIENT = """
import sys
import tensorflow as tf

folder, *questions = sys.argv[1:]
model = tf.saved_model.load(folder)
text = tf.constant(questions)

answer = model.signatures["fill_mask"](text=text)
for question, tokens, scores in zip(questions, answer["tokens"].numpy(), answer["scores"].numpy()):
    print(question)
    for token, score in zip(tokens[0], scores[0]):  # predictions for the first mask
        print(f"    {score:.3f}  {token.decode()}")

vectors = tf.math.l2_normalize(model.signatures["serving_default"](text=text)["embedding"], axis=1)
print(f"Cosine similarity of the two texts: {tf.tensordot(vectors[0], vectors[1], 1):.3f}")
"""


# %% Train a tiny model, unless there is a checkpoint
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


# %% Export it and call it
def main() -> None:
    checkpoint = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else tiny_checkpoint()
    model = kb.load_pretrained(checkpoint).model
    version = kb.export_saved_model(model, SAVED_MODELS)
    print(f"Exported {checkpoint} to {version}. Calling it without keras_bert_d2l:")
    subprocess.run([sys.executable, "-c", CLIENT, version, *QUESTIONS], check=True)


if __name__ == "__main__":
    main()
