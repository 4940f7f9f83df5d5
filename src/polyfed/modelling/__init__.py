"""What a fit on one machine and a client of a federation share: labels as rows and likelihoods of a Gaussian process, where Θ
starts and ends, whether a posterior is exact or sparse, and latent functions read out as predictions."""
