"""Patterns: events of one key that follow one another, or fail to."""
