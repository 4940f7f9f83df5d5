"""Kernels: correlation functions of inputs, as objects with `+` and `*`, by name, or as an expression of names.

| file        | what it has                                                                       |
|-------------|-----------------------------------------------------------------------------------|
| `base`      | what a kernel is; sums and products; what inference relies on                     |
| `metric`    | `rbf`, `laplace`, `cauchy`, `matern32`, `matern52`, `linear`, `affine`: by hand   |
| `periodic`  | the periodic kernel, differentiated by torch                                      |
| `registry`  | names and expressions                                                             |
"""

from polyfed.gp.kernels.base import Kernel, Phi, Positive, Product, Sum
from polyfed.gp.kernels.checks import check_kernel
from polyfed.gp.kernels.distances import absolute_distance, affine_cosine, cosine, squared_distance, unit, with_constant
from polyfed.gp.kernels.metric import MetricKernel, affine, cauchy, laplace, linear, matern32, matern52, rbf
from polyfed.gp.kernels.periodic import Periodic, periodic
from polyfed.gp.kernels.registry import KERNELS, KernelLike, kernel_of, known_kernels, register, text_of, texts_of

__all__ = [
    "KERNELS",
    "Kernel",
    "KernelLike",
    "MetricKernel",
    "Periodic",
    "Phi",
    "Positive",
    "Product",
    "Sum",
    "absolute_distance",
    "affine",
    "affine_cosine",
    "cauchy",
    "check_kernel",
    "cosine",
    "kernel_of",
    "known_kernels",
    "laplace",
    "linear",
    "matern32",
    "matern52",
    "periodic",
    "rbf",
    "register",
    "squared_distance",
    "text_of",
    "texts_of",
    "unit",
    "with_constant",
]
