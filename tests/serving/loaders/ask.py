"""Run SavedModels in a process without this package.

python ask.py QUESTIONS ANSWERS

QUESTIONS: JSON that maps each model name to its "folder", "loaders" and "requests". A loader is
"eager" (tf.saved_model.load) or "graph" (tf.compat.v1.saved_model.loader). A request is [signature,
{input: [dtype, shape, flat values]}]; strings store each byte as a character from 0 to 255.
ANSWERS: an .npz with the outputs named "loader/model/request/output". With the eager loader,
threads repeat the requests, and the outputs for the same request must be equal. This program also
runs under old releases of TensorFlow.
"""

import concurrent.futures
import json
import sys

import numpy as np
import tensorflow as tf

SAME = 1e-6
NUM_THREADS, NUM_REQUESTS = 8, 50


def main(questions_file, answers_file):
    # The graph optimizer takes longer than all requests. The other tests use it.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    with open(questions_file, encoding="utf-8") as file:
        questions = json.load(file)
    arrays = {}
    for model, question in questions.items():
        requests = [
            (signature, {name: array(*values) for name, values in inputs.items()})
            for signature, inputs in question["requests"]
        ]
        for loader in question["loaders"]:
            outputs = {"eager": eager, "graph": graph}[loader](question["folder"], requests)
            for number, answer in enumerate(outputs):
                for output, value in answer.items():
                    value = value.astype("S") if value.dtype == object else value
                    arrays[f"{loader}/{model}/{number}/{output}"] = value
    np.savez(answers_file, **arrays)
    assert not {"keras_bert_d2l", "tensorflow_text"} & sys.modules.keys()


def array(dtype, shape, values):
    if dtype == "string":
        values = [value.encode("latin-1") for value in values]
    return np.array(values, object if dtype == "string" else dtype).reshape(shape)


def eager(folder, requests):
    model = tf.saved_model.load(folder)

    def ask(signature, inputs):
        tensors = {name: tf.constant(value) for name, value in inputs.items()}
        answer = model.signatures[signature](**tensors)
        return {name: tensor.numpy() for name, tensor in answer.items()}

    outputs = [ask(*request) for request in requests]
    ask_in_threads(ask, requests, outputs)
    return outputs


def graph(folder, requests):
    options = tf.compat.v1.ConfigProto()
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default(), tf.compat.v1.Session(config=options) as session:
        meta_graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], folder)
        return [ask_session(session, meta_graph, *request) for request in requests]


def ask_session(session, meta_graph, signature, inputs):
    names = meta_graph.signature_def[signature]
    feeds = {names.inputs[name].name: value for name, value in inputs.items()}
    return session.run({name: info.name for name, info in names.outputs.items()}, feeds)


def ask_in_threads(ask, requests, expected):
    def ask_again(number):
        number %= len(requests)
        answer = ask(*requests[number])
        assert answer.keys() == expected[number].keys()
        for name, value in answer.items():
            if value.dtype.kind == "f":
                np.testing.assert_allclose(value, expected[number][name], rtol=0, atol=SAME)
            else:
                np.testing.assert_array_equal(value, expected[number][name])

    with concurrent.futures.ThreadPoolExecutor(NUM_THREADS) as pool:
        for _ in pool.map(ask_again, range(NUM_REQUESTS)):
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
