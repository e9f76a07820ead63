"""KerasHub: BertBackbone with MaskedLMHead and a next-sentence layer, which KerasHub lacks."""

import keras
import keras_hub

from benchmarks.training.contestants import turns, workload

options = workload.read_options()
size = workload.SIZES[options.size]
keras.config.set_dtype_policy(options.precision)

backbone = keras_hub.models.BertBackbone(
    vocabulary_size=workload.VOCAB_SIZE,
    num_layers=size.num_blks,
    num_heads=size.num_heads,
    hidden_dim=size.num_hiddens,
    intermediate_dim=4 * size.num_hiddens,
    dropout=workload.DROPOUT,
    max_sequence_length=workload.MAX_LEN,
)
mask_positions = keras.Input(
    (workload.num_predictions(options.tokens),), dtype="int32", name="mask_positions"
)
encoded = backbone(backbone.input)
mlm_head = keras_hub.layers.MaskedLMHead(
    token_embedding=backbone.token_embedding, intermediate_activation="gelu", name="mlm"
)
model = keras.Model(
    {**backbone.input, "mask_positions": mask_positions},
    {
        "mlm": mlm_head(encoded["sequence_output"], mask_positions),
        "nsp": keras.layers.Dense(2, name="nsp")(encoded["pooled_output"]),
    },
)
optimizer = keras.optimizers.AdamW(
    workload.LEARNING_RATE,
    weight_decay=workload.WEIGHT_DECAY,
    global_clipnorm=workload.CLIP_NORM,
)
optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer, loss={"mlm": loss, "nsp": loss})

batch = workload.make_batch(options)
features = {
    "token_ids": batch["tokens"],
    "segment_ids": batch["segments"],
    "padding_mask": (batch["tokens"] >= 0).astype("int32"),  # the batch has no padding
    "mask_positions": batch["pred_positions"],
}
labels = {"mlm": batch["mlm"], "nsp": batch["nsp"]}


def step() -> float:
    return model.train_on_batch(features, labels, return_dict=True)["loss"]


turns.take_turns(turns.repeated(step), options.answers)
