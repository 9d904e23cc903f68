"""What is measured, a file for each claim."""
