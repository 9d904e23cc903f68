"""Pages of docs/ that are made of the code: `make docs` writes them."""
