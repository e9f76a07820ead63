"""Pretrain a small BERT on your own text in a few minutes, then predict a masked word.

    python examples/01_pretrain_on_your_text.py                      # installed docstrings
    python examples/01_pretrain_on_your_text.py my_text/ runs/mine   # your text files

Run the same command again to resume an interrupted run.
"""

import pathlib
import sys

import keras_bert_d2l as kb

source, run_dir = sys.argv[1:] or ("docstrings", "runs/example")
question = "the [MASK] of the first one ."

# %% Train
result = kb.pretrain(
    source,
    run_dir,
    resume=pathlib.Path(run_dir, "run.yaml").exists(),
    vocab_size=4000,  # use a larger one for more text: 8,000 for 10 MB, 30,000 for 1 GB
    preset="mini",  # `keras-bert-d2l pretrain --help` describes all options
    steps=600,
    batch_size=32,
    max_len=64,
    short_steps=400,  # start with short rows, from which word order is learned faster
    short_len=16,
)

# %% Compare the loss before and after
before, after = result.metrics[0], result.metrics[-1]
print(
    f"Loss of the masked words on held-out text: {before['val_mlm_cross_entropy']:.2f} before, "
    f"{after['val_mlm_cross_entropy']:.2f} after"
)

# %% Fill in a masked word
print(question)
for prediction in kb.fill_mask(result.model, question)[0]:
    print(f"  {prediction.score:.3f}  {prediction.token}")
print(f'Load the checkpoint with kb.load_pretrained("{run_dir}/best").')
