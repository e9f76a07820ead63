"""Evaluate task models: metrics, confusion matrix and most confident errors."""
