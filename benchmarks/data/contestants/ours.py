"""keras_bert_d2l: `Tokenizer`, `MaskTokens`, `mask_tokens`, `pretraining_dataset`."""

import itertools

import tensorflow as tf

from benchmarks.data.contestants import workload
from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.pretraining.masking import Masking, MaskTokens, mask_tokens
from keras_bert_d2l.data.store.token_store import TokenStore

TOGETHER = 8  # batches per call

options = workload.read_options()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
store = TokenStore.open(options.store)
tokenizer = store.tokenizer()
masking = Masking("whole_word" if options.task == "store-whole-word" else "token")
num_predictions = masking.num_predictions(options.max_len)


def masked(tokens, valid_lens, keys):
    return mask_tokens(
        tokens,
        valid_lens,
        keys,
        vocab=tokenizer.vocab,
        masking=masking,
        num_predictions=num_predictions,
    )


def from_text(step, texts):
    mask = MaskTokens(tokenizer.vocab, masking, num_predictions=num_predictions)
    return mask(step, tokenizer(texts, max_len=options.max_len))


if options.task == "text":
    lines = tf.data.Dataset.from_tensor_slices(workload.texts(options)).repeat()
    # Process several batches per call, as in `pretraining_dataset`, to amortize TensorFlow's
    # per-op overhead.
    together = lines.batch(TOGETHER * options.batch_size).enumerate().map(from_text)
    batches = iter(together.rebatch(options.batch_size).prefetch(1))

    def step() -> int:
        return int(next(batches)[0]["valid_lens"].numpy().sum())

elif options.task == "masking":
    size = workload.MASKED_TOGETHER
    valid_lens = tf.fill([size], options.max_len)
    keyed = itertools.cycle(
        [
            (tf.constant(batch, tf.int32), tf.range(n * size, (n + 1) * size, dtype=tf.int64))
            for n, batch in enumerate(workload.rows(options))
        ]
    )
    mask = tf.function(masked)

    def step() -> int:
        tokens, keys = next(keyed)
        mask(tokens, valid_lens, keys)
        return size * options.max_len

else:
    dataset = pretraining_dataset(
        store,
        tokenizer,
        batch_size=options.batch_size,
        max_len=options.max_len,
        masking=masking,
        epochs=None,
    )
    batches = iter(dataset)

    def step() -> int:
        features, _, _ = next(batches)
        return int(features["valid_lens"].numpy().sum())


workload.take_turns(step, options.answers)
