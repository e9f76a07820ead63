"""keras_bert_d2l: the SavedModel's default signature, in plain TensorFlow."""

import tensorflow as tf
import tensorflow_text  # noqa: F401  # registers its ops

from benchmarks.serving.contestants import turns

parser = turns.arguments()
parser.add_argument("--threads", action="store_true", help="run one op at a time, on all cores")
options = parser.parse_args()
if options.threads:
    tf.config.threading.set_inter_op_parallelism_threads(1)

loaded = tf.saved_model.load(str(options.model))  # must live as long as its signatures
ask = loaded.signatures["serving_default"]


def answer(texts: list[str]) -> list[float]:
    return ask(text=tf.constant(texts))["scores"].numpy()[:, 1].tolist()


turns.take_turns(answer, options)
