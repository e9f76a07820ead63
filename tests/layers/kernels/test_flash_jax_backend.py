"""Flash attention. Without a GPU, XLA computes what the kernel of cuDNN would."""

import textwrap

import numpy as np
import pytest

from keras_bert_d2l.layers.kernels.attention import flash_attention, has_flash_attention
from tests.jax_backend import JAX, needs_jax


def test_tensorflow_and_a_cpu_have_no_flash_attention():
    assert not has_flash_attention("bfloat16", 64)


@needs_jax
@pytest.mark.parametrize(("num_queries", "num_keys"), [(6, 6), (3, 6), (5, 5)])
def test_the_kernel_equals_plain_attention_without_masked_keys(num_queries, num_keys):
    random = np.random.default_rng(0)
    lengths = {"q": num_queries, "k": num_keys, "v": num_keys}
    q, k, v = (random.normal(size=(2, n, 3, 8)).astype("float32") for n in lengths.values())
    scores = np.einsum("bqnh,bknh->bnqk", q, k) / np.sqrt(8)
    of_keys = np.arange(num_keys) < np.array([num_keys, 4])[:, None, None]
    of_pairs = random.random((2, num_queries, num_keys)) < 0.7
    for mask in (of_keys, of_pairs, None):
        allowed = np.ones_like(of_keys) if mask is None else mask
        weights = np.exp(np.where(allowed[:, None], scores, -np.inf))
        expected = np.einsum("bnqk,bknh->bqnh", weights / weights.sum(-1, keepdims=True), v)
        found = flash_attention(q, k, v, mask)
        np.testing.assert_allclose(found, expected, atol=1e-6)


@needs_jax
def test_a_query_without_keys_gives_finite_numbers():
    x, none = np.ones((2, 4, 1, 8), "float32"), np.zeros((2, 4, 4), bool)
    assert np.isfinite(flash_attention(x, x, x, none)).all()


PRETENDED = textwrap.dedent("""
    import keras
    import numpy as np
    from keras_bert_d2l import BERTModel
    from keras_bert_d2l.devices import Device
    from keras_bert_d2l.layers import sublayers
    from keras_bert_d2l.layers.kernels import attention as flash

    calls, original = [], flash.flash_attention

    def pretend():
        def counted(*inputs):
            calls.append(inputs)
            return original(*inputs)
        flash.device = lambda: Device("gpu", (9, 0))
        sublayers.flash_attention = counted
""")


@needs_jax
@pytest.mark.long
def test_a_model_trains_equally_with_flash_attention(fresh_process):
    code = """
        def batch(kind):
            random = np.random.default_rng(0)
            lens = np.array([1, 16, 9])
            ids = np.array([[1] * 5 + [2] * 7 + [0] * 4, [1] * 16, [1] * 3 + [2] * 4 + [3] * 9])
            features = {
                "tokens": random.integers(5, 50, (3, 16)),
                "segments": random.integers(0, 2, (3, 16)),
                "valid_lens": lens,
                "pred_positions": random.integers(0, 3, (3, 3)),
            }
            labels = {"mlm": random.integers(5, 50, (3, 3)), "nsp": np.array([0, 1, 1])}
            weights = {"mlm": np.ones((3, 3)), "nsp": np.ones(3)}
            if kind == "packed":
                features["example_ids"] = ids
                features["valid_lens"] = (ids > 0).sum(1)
            return features, labels, weights

        def trained(kind, **options):
            keras.utils.set_random_seed(0)
            sizes = {"num_heads": 2, "num_blks": 1, "max_len": 16}
            rates = {"dropout": 0.1, "attention_dropout": 0.0}
            model = BERTModel(50, 16, 32, **sizes, **rates, dtype="mixed_bfloat16")
            model.compile(keras.optimizers.SGD(1.0), **options)
            loss = model.train_on_batch(*batch(kind), return_dict=True)["loss"]
            return [loss, *model.get_weights()]

        kinds = [("lengths", {}), ("packed", {"remat": "blocks"})]
        plain = [trained(kind, **options) for kind, options in kinds]
        pretend()
        for (kind, options), expected in zip(kinds, plain):
            calls.clear()
            found = trained(kind, **options)
            assert calls, kind
            for ours, theirs in zip(found, expected):
                np.testing.assert_allclose(
                    np.float32(ours), np.float32(theirs), atol=2e-2, err_msg=kind
                )
    """
    fresh_process(PRETENDED + textwrap.dedent(code), **JAX)


@needs_jax
@pytest.mark.long
def test_flash_attention_is_used_only_where_it_computes_the_same(fresh_process):
    code = """
        config = {"num_heads": 2, "num_blks": 1, "max_len": 16}
        model = BERTModel(50, 16, 32, dropout=0.1, dtype="mixed_bfloat16", **config)
        odd, even = (np.ones((2, length), "int32") for length in (5, 6))
        def number_of_calls(encoder, tokens, **options):
            calls.clear()
            encoder(tokens, tokens * 0, np.array([3, 2]), **options)
            return len(calls)
        pretend()
        encoder = model.encoder
        assert number_of_calls(encoder, odd) == 1
        assert number_of_calls(encoder, even, attention_mask=even) == 1
        assert number_of_calls(encoder, odd, attention_mask=odd) == 1
        assert number_of_calls(encoder, odd, training=True) == 0  # dropout
        assert number_of_calls(encoder, odd, return_attention=True) == 0
        narrow = BERTModel(50, 12, 32, dropout=0.1, dtype="mixed_bfloat16", **config)
        assert number_of_calls(narrow.encoder, odd) == 0
        keras.config.disable_flash_attention()
        assert number_of_calls(encoder, odd) == 0
    """
    fresh_process(PRETENDED + textwrap.dedent(code), **JAX)
