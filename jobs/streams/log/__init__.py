"""What stands in the topics of a stream: its documents, and of which batch they are."""
