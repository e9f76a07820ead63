"""Token ids in, batches out.

`TokenStore` keeps a tokenised corpus on disk, `make_pairs` cuts it into next-sentence pairs,
`mask_tokens` chooses and corrupts the tokens to predict, and `pretraining_dataset` puts them
together into a `tf.data` pipeline for `fit`. Nothing here knows a layer or a model.
"""
