"""keras_bert_d2l: the SavedModel's default signature, in plain TensorFlow."""

import numpy as np
import tensorflow as tf

from benchmarks.serving.contestants import turns

parser = turns.arguments()
parser.add_argument("--threads", action="store_true", help="run one op at a time, on all cores")
parser.add_argument("--session", action="store_true", help="run as TensorFlow Serving does")
options = parser.parse_args()
if options.threads:
    tf.config.threading.set_inter_op_parallelism_threads(1)

if options.session:
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        loaded = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(options.model))
    signature = loaded.signature_def["serving_default"]
    run = session.make_callable(signature.outputs["scores"].name, [signature.inputs["text"].name])
else:
    loaded = tf.saved_model.load(str(options.model))  # must live as long as its signatures
    ask = loaded.signatures["serving_default"]


def answer(texts: list[str]) -> list[float]:
    if options.session:
        scores = run(np.array(texts, object))
    else:
        scores = ask(text=tf.constant(texts))["scores"].numpy()
    return scores[:, 1].tolist()


turns.take_turns(answer, options)
