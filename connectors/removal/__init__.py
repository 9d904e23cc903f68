"""Taking a pipeline away: everything that `apply` and `run` made outside the stores, found as steps of a plan."""
