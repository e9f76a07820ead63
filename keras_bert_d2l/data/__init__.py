"""From token ids to batches. Nothing here depends on a layer or a model.

`store` keeps a tokenized corpus on disk, `pretraining` turns it into a `tf.data` pipeline, and
`report` measures that pipeline. `tasks` reads labeled examples for fine-tuning. `buckets` groups
rows of similar length for both.
"""
