"""Token ids in, batches out.

`TokenStore` keeps a tokenised corpus on disk, `pairs` cuts it into examples, `packing` lays these
out in rows, `epochs` says which rows a step has, `mask_tokens` chooses and corrupts the tokens to
predict, and `pretraining_dataset` puts them together into a `tf.data` pipeline for `fit`.
`data_report` measures what comes out of it. Nothing here knows a layer or a model.
"""
