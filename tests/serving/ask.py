"""Asks a SavedModel in a process that knows nothing of the package.

python ask.py FOLDER REQUESTS ANSWERS [NUM_THREADS NUM_REQUESTS]

REQUESTS: JSON, a list of [signature, {input: [dtype, shape, flat values]}], the bytes of strings
as the characters 0 to 255. ANSWERS: an .npz with the outputs as "loader/request/output", loader
being "eager" (tf.saved_model.load) or "graph" (tf.compat.v1.saved_model.loader). Then the threads
ask NUM_REQUESTS times in all, and every answer has to be as the first one. It runs with old
releases of TensorFlow, too.
"""

import concurrent.futures
import json
import sys

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  # registers its ops

SAME = 1e-6


def main(folder, requests_file, answers_file, num_threads="0", num_requests="0"):
    with open(requests_file, encoding="utf-8") as file:
        requests = [
            (signature, {name: array(*values) for name, values in inputs.items()})
            for signature, inputs in json.load(file)
        ]
    ask = eager(folder)
    answers = {"eager": [ask(*request) for request in requests]}
    ask_in_threads(ask, requests, answers["eager"], int(num_threads), int(num_requests))
    answers["graph"] = graph(folder, requests)
    arrays = {
        f"{loader}/{number}/{output}": value.astype("S") if value.dtype == object else value
        for loader, outputs in answers.items()
        for number, answer in enumerate(outputs)
        for output, value in answer.items()
    }
    np.savez(answers_file, **arrays)
    assert "keras_bert_d2l" not in sys.modules


def array(dtype, shape, values):
    if dtype == "string":
        values = [value.encode("latin-1") for value in values]
    return np.array(values, object if dtype == "string" else dtype).reshape(shape)


def eager(folder):
    model = tf.saved_model.load(folder)

    def ask(signature, inputs):
        tensors = {name: tf.constant(value) for name, value in inputs.items()}
        answer = ask.model.signatures[signature](**tensors)
        return {name: tensor.numpy() for name, tensor in answer.items()}

    ask.model = model  # its variables live as long as it does
    return ask


def graph(folder, requests):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta_graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], folder)
        return [ask_session(session, meta_graph, *request) for request in requests]


def ask_session(session, meta_graph, signature, inputs):
    names = meta_graph.signature_def[signature]
    feeds = {names.inputs[name].name: value for name, value in inputs.items()}
    return session.run({name: info.name for name, info in names.outputs.items()}, feeds)


def ask_in_threads(ask, requests, expected, num_threads, num_requests):
    def ask_again(number):
        number %= len(requests)
        answer = ask(*requests[number])
        assert answer.keys() == expected[number].keys()
        for name, value in answer.items():
            if value.dtype.kind == "f":
                np.testing.assert_allclose(value, expected[number][name], rtol=0, atol=SAME)
            else:
                np.testing.assert_array_equal(value, expected[number][name])

    with concurrent.futures.ThreadPoolExecutor(max(1, num_threads)) as pool:
        for _ in pool.map(ask_again, range(num_requests)):
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
