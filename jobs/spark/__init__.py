"""Spark: the session, and everything that needs its JVM."""
