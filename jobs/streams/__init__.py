"""Streams: Spark SQL over events, as a query that goes on, and as the batch that proves it."""
