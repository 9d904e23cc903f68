"""sync.yaml: its models, and how it is loaded and checked."""
