"""`make demo`: a shop of real size, captured, followed live, and compared document by document."""
