"""Fine-tuning: from labeled examples to a run folder with a task model."""
