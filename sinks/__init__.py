"""One file per kind of store; the file name is the `kind` in sync.yaml."""
