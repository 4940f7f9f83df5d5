"""A kernel that breaks inference is rejected before it meets data, in a sentence that says why."""

from __future__ import annotations

import pytest
import torch

from polyfed.errors import ConfigError
from polyfed.gp import Prior
from polyfed.gp.kernels import KERNELS, Kernel, Positive, check_kernel, kernel_of, squared_distance


class Own(Kernel):
    """exp(−½ φ d²), written as a user would; its subclasses each spoil one thing."""

    name = "own"

    @property
    def parameters(self):
        return {"rate": Positive(exponent=2.0)}

    def __call__(self, x, x2, phi):
        return torch.exp(-0.5 * phi["rate"][..., None] * squared_distance(x, x2))


class WrongShape(Own):
    def __call__(self, x, x2, phi):
        return super().__call__(x, x2, phi)[..., :1, :]


class NotTensor(Own):
    def __call__(self, x, x2, phi):
        return 1.0


class NotFinite(Own):
    def __call__(self, x, x2, phi):
        return super().__call__(x, x2, phi) / (x @ x2.mT > 0)


class NotSymmetric(Own):
    def __call__(self, x, x2, phi):
        return super().__call__(x, x2, phi) * (1.0 + 0.1 * (x[..., :, None, 0] - x2[..., None, :, 0]))


class NotDefinite(Own):
    def __call__(self, x, x2, phi):
        return 1.0 - 0.3 * squared_distance(x, x2)


class NotOne(Own):
    def __call__(self, x, x2, phi):
        return 2.0 * super().__call__(x, x2, phi)


class NotBatched(Own):
    def __call__(self, x, x2, phi):
        return torch.exp(-0.5 * phi["rate"].sum() * squared_distance(x, x2))


class NotSmooth(Own):
    def __call__(self, x, x2, phi):
        return torch.exp(-phi["rate"][..., None] * squared_distance(x, x2).sqrt())


class OtherPairs(Own):
    def __call__(self, x, x2, phi):
        return super().__call__(x / x.norm(dim=(-2, -1), keepdim=True), x2 / x2.norm(dim=(-2, -1), keepdim=True), phi)


class OtherStart(Own):
    def start(self, length):
        return {"rate": torch.zeros(2, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        (WrongShape, "kernel 'own' gives (1, 9) for 9 inputs and 9; give a matrix of all pairs"),
        (NotTensor, "kernel 'own' gives float for 9 inputs and 9; give a matrix of all pairs"),
        (NotFinite, "kernel 'own' is not finite at ordinary inputs; look for divisions and roots"),
        (NotSymmetric, "kernel 'own' is not symmetric; give a function of both inputs alike"),
        (NotDefinite, "kernel 'own' is not positive semi-definite (an eigenvalue of "),
        (NotOne, "kernel 'own' has variance 2; divide by √(k(x, x) k(x', x'))"),
        (NotBatched, "kernel 'own' gives other numbers for a batch of two clients; compute each pair of inputs from"),
        (NotSmooth, "kernel 'own' has a derivative that is not finite where inputs coincide; bound it away from zero"),
        (OtherPairs, "kernel 'own' gives other numbers for"),
        (OtherStart, "kernel 'own' starts 'rate' with shape (2,); let `start` follow `parameters`"),
    ],
)
def test_each_fault_has_its_sentence(kernel, says):
    with pytest.raises(ConfigError) as caught:
        Prior(kernels=["rbf", kernel()], dims=3, outputs={"pulse": 1})
    assert says in str(caught.value)
    with pytest.raises(ConfigError):  # and not only where it is alone
        check_kernel(kernel() * KERNELS["rbf"])


@pytest.mark.parametrize("dims", [1, 4])
@pytest.mark.parametrize("kernel", [*KERNELS, "rbf + periodic", "matern52 * (linear + laplace)", Own()])
def test_sound_kernels_pass(kernel, dims):
    for n_scales in (1, dims):
        check_kernel(kernel_of(kernel), dims, n_scales)
