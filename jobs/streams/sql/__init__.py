"""The SQL of a stream over its events: what it means, and the two ways to run it."""
