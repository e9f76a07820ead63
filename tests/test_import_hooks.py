"""Effects of `import keras_bert_d2l`, and the hooks on importing TensorFlow and Keras."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import keras
import pytest

import keras_bert_d2l
from tests.jax_backend import needs_jax

TESTS = Path(__file__).parent


def in_a_process(code, *arguments, **environment):
    """Run Python code without the variables that this process sets for TensorFlow and Keras."""
    unset = ("TF_CPP_MIN_LOG_LEVEL", "KERAS_BACKEND")
    own = {name: value for name, value in os.environ.items() if name not in unset}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**own, "PYTHONPATH": str(TESTS.parent), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_importing_the_package_and_its_options_imports_neither_tensorflow_nor_keras():
    result = in_a_process("""
        import sys
        import keras_bert_d2l as kb
        import keras_bert_d2l.training.finetuning.options
        import keras_bert_d2l.training.pretraining.options
        assert "fill_mask" in dir(kb) and "fill_mask" in kb.__all__
        assert kb.BERTConfig.preset("tiny", vocab_size=8).num_blks == 2
        print([name for name in ("tensorflow", "tensorflow_text", "keras") if name in sys.modules])
        """)
    assert (result.stdout, result.stderr) == ("[]\n", "")


@pytest.mark.slow
def test_tensorflow_starts_silently_and_every_name_can_be_imported():
    result = in_a_process("""
        from keras_bert_d2l import *
        import os
        import tensorflow as tf
        config = BERTConfig(8, 4, 4, num_heads=2, num_blks=1, dropout=0.0)
        model = BERTModel.from_bert_config(config)
        tf.function(model)({"tokens": tf.zeros([1, 4], "int32"),
                            "segments": tf.zeros([1, 4], "int32"),
                            "valid_lens": tf.ones([1], "int32")})
        print("TF_CPP_MIN_LOG_LEVEL" in os.environ)
        """)
    assert (result.stdout, result.stderr) == ("False\n", "")


@pytest.mark.long
@pytest.mark.parametrize(
    "imports",
    [
        "import keras_bert_d2l, keras",
        "import keras, keras_bert_d2l",
        "import keras_bert_d2l, tensorflow, keras",
    ],
)
def test_importing_the_package_is_enough_to_load_a_keras_file_saved_by_the_first_version(imports):
    result = in_a_process(
        f"""
        {imports}
        import json, sys
        import numpy as np
        model = keras.saving.load_model(sys.argv[1])
        row = {{"tokens": np.array([[2, 5, 6, 3, 0]], "int32"),
               "segments": np.zeros((1, 5), "int32"), "valid_lens": np.array([4], "int32")}}
        known = [name for name in keras.saving.get_custom_objects() if "keras_bert_d2l>" in name]
        rate = float(model.optimizer.learning_rate)
        print(json.dumps([model.predict(row, verbose=0).tolist(), rate, sorted(known)]))
        """,
        TESTS / "version_0_1_0.keras",
    )
    assert result.returncode == 0, result.stderr
    logits, rate, known = json.loads(result.stdout)
    assert logits == [pytest.approx([-0.007429184, -0.00974613], abs=1e-6)]
    assert rate == pytest.approx(0.01)
    for name in keras_bert_d2l.__all__:
        getattr(keras_bert_d2l, name)
    of_the_book = {"keras_bert_d2l>BERTClassifier"}
    registered = {name for name in keras.saving.get_custom_objects() if "keras_bert_d2l>" in name}
    assert set(known) == registered - of_the_book


@pytest.mark.long
@pytest.mark.parametrize(
    "module", ["layers.encoder", "models.tasks", "training.optimization.schedules"]
)
def test_any_module_may_be_imported_first(module):
    result = in_a_process(f"""
        import keras_bert_d2l.{module}
        import keras
        print("keras_bert_d2l>SequenceClassifier" in keras.saving.get_custom_objects())
        """)
    assert (result.stdout, result.stderr) == ("True\n", "")


@pytest.mark.slow
@needs_jax
@pytest.mark.parametrize(
    "environment", [pytest.param({"KERAS_BACKEND": "jax"}, marks=pytest.mark.long), {}]
)
def test_keras_may_change_to_the_jax_backend_after_the_package_is_imported(environment):
    result = in_a_process(
        """
        import keras_bert_d2l as kb
        import keras
        keras.config.set_backend("jax")
        import keras
        import tensorflow
        config = kb.BERTConfig(8, 4, 4, num_heads=2, num_blks=1, dropout=0.0)
        model = kb.BERTModel.from_bert_config(config)
        print(keras.backend.backend(), type(model.weights[0].value).__module__.split(".")[0])
        """,
        **environment,
    )
    assert result.stdout == "jax jaxlib\n", result.stderr
    assert "oneDNN" not in result.stderr  # a message of TensorFlow
