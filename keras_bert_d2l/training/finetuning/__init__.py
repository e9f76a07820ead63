"""Labeled examples -> a run folder with a fine-tuned model."""
