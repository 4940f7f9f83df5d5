"""The model of one client: a multi-output GP with mixed likelihoods and closed-form inference. torch alone.

| on paper        | in code                        | what it is                                              |
|-----------------|--------------------------------|---------------------------------------------------------|
| Θ               | `Prior`                        | groups `features`, `kernels`, `mixing`, `noise`         |
| f_i, g_b        | `f`, `g`                       | outputs and latent functions; sizes T and B             |
| W, φ_b, θ, σ_i² | `W`, `phi1`, `features`, `noise` | parameters of Θ                                       |
| K, H            | `K`, `h`                       | prior covariance of the rows, precision of their sites  |
| m, Σ            | `m`, `v`                       | posterior of the rows; `v` is the diagonal              |
| f̄, f̃            | `m`, `c`                       | c = √E[f²]                                              |
| ω, E[ω]         | `pg_mean(c)`                   | Pólya-Gamma variables, never sampled                    |
| q(f), ELBO      | `Posterior`, `.bound`          | result of `infer`                                       |

Reading order: `linalg` (one primitive), `kernels`, `prior` and `lmc` (the prior), `likelihoods/base` (what a site is),
`rows`, `exact`, `meanfield` (the loop), `predict`; then functions that clients share (`knowledge`, `whitened`), large
clients (`inducing`, `sparse`, `latent_sparse`, `blocks`, `informed_sparse`, `gap`, `stochastic`) and many clients (`batch`).
"""

from polyfed.gp.batch import BatchStep, ClientBatch
from polyfed.gp.exact import ExactModel
from polyfed.gp.gap import gap_estimate
from polyfed.gp.inducing import choose_inducing
from polyfed.gp.informed_sparse import InformedSparseModel
from polyfed.gp.knowledge import Evidence, Knowledge
from polyfed.gp.latent_sparse import SparseModel
from polyfed.gp.likelihoods import Likelihood, likelihood_for
from polyfed.gp.meanfield import Model, Posterior, infer
from polyfed.gp.predict import LatentPrediction, predict_latents
from polyfed.gp.prior import GROUPS, Prior, group_of
from polyfed.gp.rows import Rows
from polyfed.gp.sparse import PaperSparseModel

__all__ = [
    "GROUPS",
    "BatchStep",
    "ClientBatch",
    "Evidence",
    "ExactModel",
    "InformedSparseModel",
    "Knowledge",
    "LatentPrediction",
    "Likelihood",
    "Model",
    "PaperSparseModel",
    "Posterior",
    "Prior",
    "Rows",
    "SparseModel",
    "choose_inducing",
    "gap_estimate",
    "group_of",
    "infer",
    "likelihood_for",
    "predict_latents",
]
