"""Methods with a shared network and a Bayesian model of each task on its features: pFedGP and pFedVEM."""
