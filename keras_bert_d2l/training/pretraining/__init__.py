"""Pretraining: from a corpus or a token store to a run folder with a trained model."""
