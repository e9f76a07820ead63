"""Fine-tuning: from labeled examples to a run folder with the model of a task."""
