"""A file of YAML: where each value of it stands, and what is probably meant where it cannot be read."""
