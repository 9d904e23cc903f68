"""A standby that takes the place of the server that was read."""
