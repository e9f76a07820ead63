"""Files of labeled examples -> examples in memory."""
