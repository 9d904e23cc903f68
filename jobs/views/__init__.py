"""Joined views kept up from the log: the rows of their tables, and the documents to write."""
