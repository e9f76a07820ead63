r"""Time of DeBERTa's attention against that of a BERT of the same size.

    python -m benchmarks.training.distances
    python -m benchmarks.training.distances --work step --rows 4 --lengths 128 512 --blocks 12

The models have random weights and the shapes of `base`, `deberta-base` and `deberta-v3-base`, with
fewer blocks by default. They take turns in one process. `ratio` is the median ratio over the rounds
of the CPU times of a DeBERTa and of the BERT, which other processes hardly change; `seconds_ratio`
is that of wall-clock times. `answer` is the graph of a SavedModel, which classifies
by the first token; `onnx` and `int8` are the same in onnxruntime; `step` is a training step of
masked words with dropout and AdamW. Rows have no padding.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

PRESETS = {"bert": "base", "v1": "deberta-base", "v3": "deberta-v3-base"}
VOCAB_SIZE = 8000
SHARE_OF_PREDICTIONS = 0.15


def works(kind: str, preset: str, tokens: np.ndarray, width: int, blocks: int) -> Callable:
    """Return what is timed: an answer, or a training step."""
    import tensorflow as tf

    import keras_bert_d2l as kb
    from keras_bert_d2l.layers.kernels.attention import exported

    sizes = {"num_hiddens": width, "num_heads": width // 64, "ffn_num_hiddens": width * 4}
    fields = {**sizes, "num_blks": blocks, "activation": "gelu", "next_sentence": False}
    config = kb.BERTConfig.preset(preset, vocab_size=VOCAB_SIZE, **fields)
    bert = kb.BERTModel.from_bert_config(config)
    rows, length = tokens.shape
    if kind == "step":
        bert.compile(kb.BERTAdamW(1e-4))
        positions = np.tile(np.arange(int(SHARE_OF_PREDICTIONS * length), dtype="int32"), (rows, 1))
        batch = {"tokens": tokens, "pred_positions": positions}
        labels, weights = {"mlm": positions}, {"mlm": np.ones(positions.shape, "float32")}
        return lambda: bert.train_on_batch(batch, labels, weights)
    model = kb.SequenceClassifier(bert, ["a", "b"])
    lens = np.full(rows, length, "int32")
    if kind == "answer":

        def classify(tokens: tf.Tensor, lens: tf.Tensor) -> tf.Tensor:
            with exported():
                return model({"tokens": tokens, "valid_lens": lens})

        specs = [tf.TensorSpec((None, None), "int32"), tf.TensorSpec((None,), "int32")]
        graph = tf.function(classify, input_signature=specs, autograph=False)
        return lambda: graph(tokens, lens).numpy()
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        file = kb.export_onnx(model, os.path.join(folder, "model"), int8=kind == "int8")
        session = onnxruntime.InferenceSession(str(file))
    inputs = {"input_ids": tokens.astype("int64"), "attention_mask": np.ones(tokens.shape, "int64")}
    if preset == "base":
        inputs["token_type_ids"] = np.zeros(tokens.shape, "int64")
    return lambda: session.run(None, inputs)


def compare(kind: str, rows: int, length: int, options: argparse.Namespace) -> dict[str, object]:
    """Time the models in this process, in turns."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # hides TensorFlow's messages
    tokens = np.random.default_rng(0).integers(5, VOCAB_SIZE, (rows, length), "int32")
    sizes = options.width, options.blocks
    work = {name: works(kind, preset, tokens, *sizes) for name, preset in PRESETS.items()}
    for run in work.values():  # builds the graphs
        run()
    times: dict[str, list[np.ndarray]] = {name: [] for name in work}
    for _ in range(options.rounds):
        for name, run in work.items():
            start = np.array([time.process_time(), time.perf_counter()])
            run()
            times[name].append(np.array([time.process_time(), time.perf_counter()]) - start)
    seconds = {name: np.array(each) for name, each in times.items()}
    found: dict[str, object] = {"work": kind, "rows": rows, "length": length, "width": sizes[0]}
    found["bert_cpu_ms"] = (1e3 * np.median(seconds["bert"][:, 0])).round(1)
    for name in [name for name in work if name != "bert"]:
        cpu, clock = np.median(seconds[name] / seconds["bert"], axis=0).round(2)
        found |= {f"{name}_ratio": cpu, f"{name}_seconds_ratio": clock}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", nargs="+", default=["answer", "step", "onnx", "int8"])
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    for kind in options.work:
        for rows in options.rows:
            for length in options.lengths:
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(
                        json.dumps(pool.apply(compare, (kind, rows, length, options))), flush=True
                    )


if __name__ == "__main__":
    main()
