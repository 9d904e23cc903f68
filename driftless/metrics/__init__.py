"""What can be measured of a pipeline: which figures there are and what they mean, and which of them are an alarm."""
