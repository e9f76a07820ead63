"""Token store -> a report on what the model will see."""
