"""What a pipeline has in the source and in Connect: checked, planned, made and watched."""
