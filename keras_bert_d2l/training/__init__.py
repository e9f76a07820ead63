"""Pretraining, fine-tuning and the code they share."""
