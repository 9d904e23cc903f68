"""What is known of a pipeline: asked for at its own pace, and kept for whoever asks."""
