"""Principal components of rows that many clients hold, from sums alone.

In a pass every client sends X'(XQ), Σx and its number of rows, for an orthonormal basis Q that all know. Their sums less the
mean's part are Y = CQ, where C is the scatter of all rows around their mean. Y spans the next basis (block power iteration:
Halko, Martinsson, Tropp, SIAM Review 2011). After the last pass no client is asked again: C is taken for Y (Q'Y)⁻¹ Y', whose
eigenvectors are nearer to those of C than any in the span of Q (Tropp, Yurtsever, Udell, Cevher, NeurIPS 2017, with the shift
that they choose). Equal to the components of the pooled rows as passes grow.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyfed.gp.linalg import cholesky

# Columns of a basis beyond the components that are wanted, which catch what would blur the last of these: at least this number,
# and this share. With four passes both together leave less than a thousandth of the variance (images, 256 components).
FURTHER, SHARE = 8, 0.5
LEAST = 1e-10  # of the largest variance: what is below is no component
ROUNDING = 1e2  # times the shift: what is below may be rounding alone


@dataclass(frozen=True)
class Products:
    """What rows say of their components in a pass, of one client or of many together."""

    products: Tensor  # X'(XQ), (D, k)
    inputs: Tensor  # Σx, (D,)
    count: Tensor  # rows

    @classmethod
    def of(cls, x: Tensor, Q: Tensor) -> Products:
        return cls(x.mT @ (x @ Q), x.sum(0), torch.tensor(float(len(x)), dtype=torch.float64))

    def __add__(self, other: Products) -> Products:
        return Products(self.products + other.products, self.inputs + other.inputs, self.count + other.count)

    @property
    def mean(self) -> Tensor:
        return self.inputs / self.count.clamp_min(1.0)

    def scatter(self, Q: Tensor) -> Tensor:
        """CQ."""
        return self.products - torch.outer(self.mean, self.inputs @ Q)


@dataclass(frozen=True)
class Components:
    """z = (x − centre) directions: scores of rows, of mean zero and mean square norm one over all rows that were seen.

    Attributes:
        directions: (D, m), each of the same length, by falling variance.
        centre: (D,) the mean of the rows.
        variances: (m,) of the rows along them, before they were scaled.
    """

    directions: Tensor
    centre: Tensor
    variances: Tensor

    def scores(self, x: Tensor) -> Tensor:
        return (x - self.centre) @ self.directions

    def unseen(self, x: Tensor) -> Tensor:
        """(N,) squared norm, in the units of scores, of what rows have beside the components.

        >>> axes = torch.eye(3)[:, :2] / 2  # of variances whose sum is four
        >>> Components(axes, torch.zeros(3), torch.tensor([3.0, 1.0])).unseen(torch.tensor([[1.0, 2.0, 4.0]]))
        tensor([4.])
        """
        if not len(self.variances):
            return x.new_zeros(len(x))
        whole = (x - self.centre).square().sum(-1) / self.variances.sum()
        return (whole - self.scores(x).square().sum(-1)).clamp_min(0.0)


def first_basis(dims: int, n: int, generator: torch.Generator) -> Tensor:
    """Orthonormal columns in directions of chance, for n components; no more of them than there are dimensions."""
    n += max(FURTHER, int(SHARE * n))
    return basis_of(torch.randn(dims, min(n, dims), generator=generator, dtype=torch.float64))


def basis_of(Y: Tensor) -> Tensor:
    """An orthonormal basis of the span of Y's columns."""
    return torch.linalg.qr(Y).Q.contiguous()  # as it is read from a file: sums over it are the same to the last digit


def leading(sums: Products, Q: Tensor, n: int) -> Components:
    """The n leading components, or fewer if the rows have no more."""
    Y = sums.scatter(Q)
    size = float(torch.linalg.matrix_norm(sums.products))  # of what the mean was taken out of, and rounded with
    shift = size * torch.finfo(torch.float64).eps * len(Y) ** 0.5
    if float(torch.linalg.matrix_norm(Y)) <= ROUNDING * shift:  # one row, or features that are all constant
        return Components(Y[:, :0], sums.mean, Y.new_zeros(0))
    shifted = Y + shift * Q
    core = Q.mT @ shifted
    L = cholesky(0.5 * (core + core.mT))
    U, S, _ = torch.linalg.svd(
        torch.linalg.solve_triangular(L.mT, shifted, upper=True, left=False), full_matrices=False
    )
    scatter = (S.square() - shift).clamp_min(0.0)
    kept = min(n, int((scatter > max(LEAST * float(scatter[0]), ROUNDING * shift)).sum()))
    variances = scatter[:kept] / sums.count.clamp_min(1.0)
    return Components((U[:, :kept] / variances.sum().sqrt()).contiguous(), sums.mean, variances)
