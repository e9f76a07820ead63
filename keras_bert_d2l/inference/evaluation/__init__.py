"""Metrics, predictions and worst errors of a fine-tuned model."""
