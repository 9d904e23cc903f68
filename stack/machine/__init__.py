"""What the local servers need of the machine: files, folders, ports, processes."""
