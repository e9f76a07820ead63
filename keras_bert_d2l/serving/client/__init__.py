"""A client for TensorFlow Serving, over REST and gRPC."""
