"""Token store -> batches for pretraining: pairs, masking, packing, epochs."""
