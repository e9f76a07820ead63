"""Task data: from files of labeled examples to batches for a task model."""
