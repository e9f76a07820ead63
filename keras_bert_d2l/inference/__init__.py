"""Logits in, words out: what a trained model answers."""
