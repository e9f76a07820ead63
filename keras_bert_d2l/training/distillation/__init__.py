"""Distillation: smaller students of trained models."""
