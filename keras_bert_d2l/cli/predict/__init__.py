"""Commands that apply and evaluate a fine-tuned model."""
