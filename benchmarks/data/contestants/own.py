"""A `tf.data` pipeline of one's own with `frame_tokens` and `MaskTokens`, on pairs of texts."""

import tensorflow as tf

import keras_bert_d2l as kb
from benchmarks.data.contestants import workload

options = workload.read_options()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
vocab = kb.Vocab(workload.vocab_tokens(options))
masking = kb.Masking("whole_word" if options.task == "store-whole-word" else "token")
mask = kb.MaskTokens(vocab, masking, num_predictions=masking.num_predictions(options.max_len))


def masked(number, texts):
    return mask(number, kb.frame_tokens(*texts, vocab=vocab, max_len=options.max_len))


pairs = tf.data.Dataset.from_tensor_slices(workload.pairs(options)).repeat()
batches = iter(pairs.batch(options.batch_size).enumerate().map(masked).prefetch(1))


def step() -> int:
    return int(next(batches)[0]["valid_lens"].numpy().sum())


workload.take_turns(step, options.answers)
