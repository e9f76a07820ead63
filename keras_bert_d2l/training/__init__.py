"""Pretraining and fine-tuning, and the parts they share."""
