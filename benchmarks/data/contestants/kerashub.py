"""KerasHub in tf.data, on complete batches: its preprocessor, or its layers on pairs of ids."""

import keras_hub
import tensorflow as tf

from benchmarks.data.contestants import workload

options = workload.read_options()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
vocab = workload.vocab_tokens(options)
num_predictions = round(workload.MASK_RATE * options.max_len)
if options.task == "text":
    preprocess = keras_hub.models.BertMaskedLMPreprocessor(
        keras_hub.models.BertTokenizer(vocabulary=vocab, lowercase=True),
        sequence_length=options.max_len,
        mask_selection_rate=workload.MASK_RATE,
        mask_selection_length=num_predictions,
    )
    rows = tf.data.Dataset.from_tensor_slices(workload.texts(options)).repeat()
else:
    pad, *special = (vocab.index(token) for token in ("[PAD]", "[CLS]", "[SEP]", "[MASK]"))
    pack = keras_hub.layers.MultiSegmentPacker(
        options.max_len, start_value=special[0], end_value=special[1], pad_value=pad
    )
    mask = keras_hub.layers.MaskedLMMaskGenerator(
        len(vocab),
        workload.MASK_RATE,
        mask_token_id=special[2],
        mask_selection_length=num_predictions,
        unselectable_token_ids=[pad, *special],
    )

    def preprocess(*texts):
        tokens, segments = pack(texts)
        return {"padding_mask": tokens != pad, "segments": segments, **mask(tokens)}, None

    rows = tf.data.Dataset.from_tensor_slices(workload.pairs(options)).repeat()
batches = iter(rows.batch(options.batch_size).map(preprocess).prefetch(1))


def step() -> int:
    features, *_ = next(batches)
    return int(tf.math.count_nonzero(features["padding_mask"]))


workload.take_turns(step, options.answers)
