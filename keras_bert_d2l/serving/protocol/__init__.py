"""Requests and responses: TensorFlow Serving's JSON format, and its conversion to arrays."""
