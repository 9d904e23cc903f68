"""What is asked of a pipeline as a whole, by people and by programs, and the service that answers them over HTTP."""
