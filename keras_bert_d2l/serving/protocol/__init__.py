"""Requests and answers: JSON as TensorFlow Serving writes it, and arrays."""
