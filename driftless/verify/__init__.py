"""Verify: prove that followers, and the log they read, equal the source at an exact position of its log."""
