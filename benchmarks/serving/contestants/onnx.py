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

    spec = tf.TensorSpec((None,), tf.string)
    graph = tf.function(Tokenizer(Vocab.from_file(options.vocab)), input_signature=[spec])
    return lambda texts: {k: x.numpy() for k, x in graph(tf.constant(texts)).items()}


def huggingface() -> Callable[[list[str]], Batch]:
    """Return Hugging Face's tokenizer with its fastest method."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(str(options.vocab))
    tokenizer.enable_padding()

    def encode(texts: list[str]) -> Batch:
        found = tokenizer.encode_batch(texts)
        return {
            "tokens": np.int32([one.ids for one in found]),
            "segments": np.int32([one.type_ids for one in found]),
            "valid_lens": np.int32([sum(one.attention_mask) for one in found]),
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
