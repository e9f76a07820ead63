"""Hugging Face: BertForPreTraining in PyTorch, with default settings or tuned (`--tuned`).

The tuned variant uses PyTorch's attention kernel and fused optimizer, and computes logits only at
the predicted positions. `--compiled` also compiles the forward and the backward pass.
"""

import contextlib

import torch
from transformers import BertConfig, BertForPreTraining

from benchmarks.training.contestants import turns, workload

options = workload.read_options()
size = workload.SIZES[options.size]

config = BertConfig(
    vocab_size=workload.VOCAB_SIZE,
    hidden_size=size.num_hiddens,
    num_hidden_layers=size.num_blks,
    num_attention_heads=size.num_heads,
    intermediate_size=4 * size.num_hiddens,
    hidden_dropout_prob=workload.DROPOUT,
    attention_probs_dropout_prob=options.attention_dropout,
    max_position_embeddings=workload.MAX_LEN,
    attn_implementation="sdpa" if options.tuned else "eager",
)
device = {"cpu": "cpu", "gpu": "cuda"}[options.device]
model = BertForPreTraining(config).to(device).train()
decayed = [p for name, p in model.named_parameters() if p.ndim > 1]
others = [p for name, p in model.named_parameters() if p.ndim == 1]
optimizer = torch.optim.AdamW(
    [{"params": decayed}, {"params": others, "weight_decay": 0.0}],
    lr=workload.LEARNING_RATE,
    weight_decay=workload.WEIGHT_DECAY,
    fused=options.tuned or None,
)

batch = {
    key: torch.as_tensor(value, device=device).long()
    for key, value in workload.make_batch(options).items()
}
inputs = {
    "input_ids": batch["tokens"],
    "token_type_ids": batch["segments"],
    # A compiled model cannot see that a mask masks nothing, and then attention is slower.
    "attention_mask": None if options.compiled else torch.ones_like(batch["tokens"]),
}
labels = torch.full_like(batch["tokens"], -100)
labels.scatter_(1, batch["pred_positions"], batch["mlm"])


def loss_as_shipped() -> torch.Tensor:
    return model(**inputs, labels=labels, next_sentence_label=batch["nsp"]).loss


def loss_at_predicted_positions() -> torch.Tensor:
    outputs = model.bert(**inputs)
    positions = batch["pred_positions"][..., None].expand(-1, -1, size.num_hiddens)
    predicted = torch.gather(outputs.last_hidden_state, 1, positions)  # (B, P, D)
    mlm_logits, nsp_logits = model.cls(predicted, outputs.pooler_output)
    cross_entropy = torch.nn.functional.cross_entropy
    mlm_loss = cross_entropy(mlm_logits.flatten(0, 1).float(), batch["mlm"].flatten())
    return mlm_loss + cross_entropy(nsp_logits.float(), batch["nsp"])


forward = loss_at_predicted_positions if options.tuned else loss_as_shipped
if options.compiled:
    forward = torch.compile(forward)
    torch.set_float32_matmul_precision("high")
autocast = (
    torch.autocast(device, torch.bfloat16)
    if options.precision == "mixed_bfloat16"
    else contextlib.nullcontext()
)


def step() -> torch.Tensor:
    optimizer.zero_grad(set_to_none=True)
    with autocast:
        loss = forward()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), workload.CLIP_NORM)
    optimizer.step()
    return loss.detach()


def peak_mb() -> float:
    if device == "cpu":
        return turns.peak_mb_of_process()
    return torch.cuda.max_memory_allocated() / 2**20


turns.take_turns(turns.repeated(step), options.answers, peak_mb=peak_mb)
