"""Commands that run a trained model."""
