"""Corpus or token store -> a run folder with a pretrained model."""
