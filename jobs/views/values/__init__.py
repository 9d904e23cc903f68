"""Values in the row store: what compares and sorts as Postgres has it, and what is computed of them."""
