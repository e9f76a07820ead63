"""A development server with TensorFlow Serving's REST routes."""
