"""What `driftless destroy` finds and takes away."""
