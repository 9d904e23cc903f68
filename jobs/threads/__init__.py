"""Threads of a process that follows."""
