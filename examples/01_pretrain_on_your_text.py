"""Raw text to a BERT of your own: a vocabulary, some minutes of training, a hidden word found.

    python examples/01_pretrain_on_your_text.py                        # docstrings at hand
    python examples/01_pretrain_on_your_text.py my_text/ runs/mine     # your text files

A run that was stopped goes on when the same line is given again.
"""

import pathlib
import sys

import keras_bert_d2l as kb

source, run_dir = sys.argv[1:] or ("docstrings", "runs/example")
question = "the [MASK] of the first one ."

result = kb.pretrain(
    source,
    run_dir,
    resume=pathlib.Path(run_dir, "run.yaml").exists(),
    vocab_size=4000,  # more for more text: 8,000 for 10 MB, 30,000 for 1 GB
    preset="mini",  # the options are those of `keras-bert-d2l pretrain --help`
    steps=600,
    batch_size=32,
    max_len=64,
    short_steps=400,  # on short rows first, from which word order is learned sooner
    short_len=16,
)
before, after = result.metrics[0], result.metrics[-1]
print(
    f"held-out loss of the masked words: {before['val_mlm_cross_entropy']:.2f} before, "
    f"{after['val_mlm_cross_entropy']:.2f} after"
)

print(question)
for prediction in kb.fill_mask(result.model, result.tokenizer, question)[0]:
    print(f"  {prediction.score:.3f}  {prediction.token}")
print(f"The checkpoint is {run_dir}/best; `kb.load_pretrained` reads it.")
