"""pfed-hier for wide inputs (features of images): shared functions of the federation's principal components."""
