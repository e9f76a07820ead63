"""keras_bert_d2l: `fit` on batches of `TaskRows`."""

import keras

import keras_bert_d2l as kb
from benchmarks.tasks.contestants import turns as contest
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.inference.evaluation import evaluate
from keras_bert_d2l.training.optimization.schedules import WarmupLinearDecay

options = contest.arguments()
keras.utils.set_random_seed(0)
if options.precision == "bfloat16":
    keras.config.set_dtype_policy("mixed_bfloat16")

train, dev = (read_examples("classify", path) for path in (options.train, options.dev))
model, tokenizer, _ = kb.load_pretrained(options.checkpoint, verbose=False)
rows = TaskRows.encode(train, tokenizer, labels=model.labels, max_len=options.max_len)
warmup_steps = contest.warmup_steps(options.steps)
rate = WarmupLinearDecay(contest.LEARNING_RATE, warmup_steps, options.steps)
optimizer = kb.BERTAdamW(rate, contest.WEIGHT_DECAY, clip_norm=contest.CLIP_NORM)
model.compile(optimizer)


class Waiting(keras.callbacks.Callback):
    def __init__(self, turns: contest.Turns) -> None:
        super().__init__()
        self.turns = turns

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.turns.step_done()


turns = contest.Turns(options)
epoch, left = 0, options.steps
while left:
    batches = rows.batches(options.batch_size, epoch=epoch).take(left)
    model.fit(batches, callbacks=[Waiting(turns)], verbose=0)
    epoch, left = epoch + 1, left - int(batches.cardinality())
turns.answer(**evaluate(model, dev, max_len=options.max_len).metrics)
