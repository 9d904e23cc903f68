"""The source database."""
