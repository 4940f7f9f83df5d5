"""Methods in which every client has a Gaussian process over its tasks: pFed-Mul, pFed-St, pfed-hier, and what they share."""
