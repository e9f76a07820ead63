"""The playground: one HTML page with a model inside."""
