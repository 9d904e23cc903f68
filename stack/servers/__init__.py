"""The local servers, a file for each."""
