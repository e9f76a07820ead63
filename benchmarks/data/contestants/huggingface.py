"""Hugging Face: Rust tokenizers, then DataCollatorForLanguageModeling."""

import itertools

import tokenizers
import torch
import transformers

from benchmarks.data.contestants import workload

options = workload.read_options()
torch.set_num_threads(1)
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.BertWordPieceTokenizer(str(options.store / "vocab.txt"))._tokenizer,
    unk_token="[UNK]",
    cls_token="[CLS]",
    sep_token="[SEP]",
    pad_token="[PAD]",
    mask_token="[MASK]",
)
collate = transformers.DataCollatorForLanguageModeling(
    tokenizer, mlm_probability=workload.MASK_RATE
)

if options.task == "text":
    lines = itertools.cycle(workload.texts(options))

    def step() -> int:
        texts = list(itertools.islice(lines, options.batch_size))
        encoded = tokenizer(
            texts, truncation=True, max_length=options.max_len, return_special_tokens_mask=True
        )
        batch = collate(
            [
                dict(zip(encoded, values, strict=True))
                for values in zip(*encoded.values(), strict=True)
            ]
        )
        return int(batch["attention_mask"].sum())

else:
    batches = itertools.cycle(
        [[{"input_ids": row} for row in batch] for batch in workload.rows(options)]
    )

    def step() -> int:
        return collate(next(batches))["input_ids"].numel()


workload.take_turns(step, options.answers)
