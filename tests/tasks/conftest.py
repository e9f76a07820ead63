"""Models whose outputs depend on single words, files, and signatures that are not exported."""

import pytest
import tensorflow as tf

from keras_bert_d2l.signatures.signature import TextOptions
from keras_bert_d2l.signatures.signatures import model_signatures
from tests.inference.conftest import (  # noqa: F401
    open_bert,
    open_task,
    words_bert,
    words_tokenizer,
)
from tests.serving.conftest import (  # noqa: F401
    PAIRS,
    TOP_K,
    functions_run_eagerly,
    make_model,
    task_models,
    tokenizer,
)

THRESHOLD = -9.2  # above which about half of the questions of test_signature have no answer


@pytest.fixture(scope="session")
def ask_signature(task_models):  # noqa: F811
    """A function that calls a signature of one of the `task_models` with lists of strings.

    The models are not exported, and run eagerly; tests/serving has exported models.
    """
    found = {}

    def ask(name, signature="serving_default", **arguments):
        if name not in found:
            model, threshold = task_models[name], THRESHOLD if name == "answerer" else None
            options = TextOptions(name == PAIRS, TOP_K, threshold)
            found[name] = model_signatures(model, model.tokenizer, options)
        function = found[name][signature].function
        with functions_run_eagerly():
            outputs = function(*(tf.constant(strings, tf.string) for strings in arguments.values()))
        return {key: tensor.numpy() for key, tensor in outputs.items()}

    return ask
