"""What the control topic says of a pipeline, as values. Nothing here reads or writes the topic."""
