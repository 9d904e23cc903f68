"""What `verify` compares, put together from the configuration and the control topic."""
