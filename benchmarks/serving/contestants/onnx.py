"""onnxruntime on a file written by `export_onnx`, with our tokenizer or Hugging Face's."""

from collections.abc import Callable

import numpy as np
import onnxruntime

from benchmarks.serving.contestants import turns

Batch = dict[str, np.ndarray]


def ours() -> Callable[[list[str]], Batch]:
    """Return our tokenizer as a graph function."""
    import tensorflow as tf

    from keras_bert_d2l import Tokenizer, Vocab

    tokenizer = Tokenizer(Vocab.from_file(options.vocab))

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
    def graph(texts: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = tokenizer(texts)
        inputs = {
            "input_ids": batch["tokens"],
            "attention_mask": tf.sequence_mask(batch["valid_lens"]),
            "token_type_ids": batch["segments"],
        }
        return {name: tf.cast(x, tf.int64) for name, x in inputs.items()}

    return lambda texts: {k: x.numpy() for k, x in graph(tf.constant(texts)).items()}


def huggingface() -> Callable[[list[str]], Batch]:
    """Return Hugging Face's tokenizer with its fastest method."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(str(options.vocab))
    tokenizer.enable_padding()

    def encode(texts: list[str]) -> Batch:
        found = tokenizer.encode_batch(texts)
        return {
            "input_ids": np.int64([one.ids for one in found]),
            "attention_mask": np.int64([one.attention_mask for one in found]),
            "token_type_ids": np.int64([one.type_ids for one in found]),
        }

    return encode


tokenizers = {"ours": ours, "huggingface": huggingface}
parser = turns.arguments()
parser.add_argument("--tokenizer", choices=tokenizers, required=True)
options = parser.parse_args()
session = onnxruntime.InferenceSession(str(options.model))
tokenize = tokenizers[options.tokenizer]()


def answer(texts: list[str]) -> list[float]:
    (logits,) = session.run(["logits"], tokenize(texts))
    return (1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))).tolist()


turns.take_turns(answer, options)
