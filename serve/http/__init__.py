"""Answering over HTTP: who may ask, what one client may take, and the server."""
