"""Addresses: of numbers within arrays for LAPACK, and of functions that are chosen at run time.

Arrays and functions whose number is known at run time alone (a metric for each latent, a likelihood for each task) are passed
as addresses. So one compiled loop serves all of them, and a new kernel or likelihood is compiled by itself.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.np.arrayobj import populate_array

intrinsic: Any = extending.intrinsic  # of what comes of it, callers leave out the typing context
DOUBLES = types.CPointer(types.float64)
# y, rows of each datum, number of data, noise, options, m, v -> h, r
SITE = types.void(DOUBLES, types.intp, types.intp, types.float64, DOUBLES, DOUBLES, DOUBLES, DOUBLES, DOUBLES)
# the same up to v -> the sum of the local bounds
BOUND = types.float64(DOUBLES, types.intp, types.intp, types.float64, DOUBLES, DOUBLES, DOUBLES)
# d, φ₁, n -> s; for slopes, weights: weight ← weight · s'(t)/s(t) at t = φ₁ d
PROFILE = SLOPE = types.void(DOUBLES, types.float64, types.intp, DOUBLES)
# x, columns of other inputs, their distance, number of dimensions, φ₁ of each, n -> t
SCALED = types.void(DOUBLES, DOUBLES, types.intp, types.intp, DOUBLES, types.intp, DOUBLES)
# the same up to the dimensions, weights, a factor of all, n: adds Σ weight · ∂t/∂φ₁ of each
BY_INPUT = types.void(DOUBLES, DOUBLES, types.intp, types.intp, DOUBLES, types.float64, types.intp, DOUBLES)


def _element(context, builder, signature, args):
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    return builder.gep(data, [args[1]])


@intrinsic
def pointer_to(typingctx, array, offset):
    """A pointer to element `offset` of a contiguous array, for callbacks."""
    return DOUBLES(array, types.intp), _element


@intrinsic
def address_of(typingctx, array, offset):
    """The same for LAPACK."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(_element(context, builder, signature, args), cgutils.voidptr_t)

    return types.voidptr(array, types.intp), codegen


MATRIX = types.Array(types.float64, 2, "C")


def _matrix(context, builder, data, n_rows, n_columns):
    matrix = context.make_array(MATRIX)(context, builder)
    size = context.get_constant(types.intp, 8)
    strides = [builder.mul(n_columns, size), size]
    populate_array(matrix, data=data, shape=[n_rows, n_columns], strides=strides, itemsize=size, meminfo=None)
    return matrix._getvalue()


@intrinsic
def matrix_at(typingctx, address, n_rows, n_columns):
    """The matrix at an address, row by row, which is kept alive elsewhere."""

    def codegen(context, builder, signature, args):
        data = builder.inttoptr(args[0], context.get_value_type(DOUBLES))
        return _matrix(context, builder, data, *args[1:])

    return MATRIX(types.intp, types.intp, types.intp), codegen


@intrinsic
def matrix_in(typingctx, array, n_rows, n_columns):
    """The first numbers of an array as a matrix; `reshape` would be a call, and count who holds them."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return _matrix(context, builder, data, *args[1:])

    return MATRIX(array, types.intp, types.intp), codegen


def _caller(kind):
    """Calls the function of this type at an address."""

    def codegen(context, builder, signature, args):
        types_in = [context.get_value_type(each) for each in kind.args]
        out = ir.VoidType() if kind.return_type == types.void else context.get_value_type(kind.return_type)
        function = builder.inttoptr(args[0], ir.FunctionType(out, types_in).as_pointer())
        result = builder.call(function, args[1:])
        return context.get_dummy_value() if kind.return_type == types.void else result

    return kind.return_type(types.intp, *kind.args), codegen


@intrinsic
def call_site(typingctx, address, y, n_rows, n, noise, options, m, v, h, r):
    return _caller(SITE)


@intrinsic
def call_bound(typingctx, address, y, n_rows, n, noise, options, m, v):
    return _caller(BOUND)


@intrinsic
def call_profile(typingctx, address, d, phi1, n, s):
    return _caller(PROFILE)


@intrinsic
def call_slope(typingctx, address, d, phi1, n, weights):
    return _caller(SLOPE)


@intrinsic
def call_scaled(typingctx, address, x, columns, stride, dims, phi1, n, t):
    return _caller(SCALED)


@intrinsic
def call_by_input(typingctx, address, x, columns, stride, dims, weights, factor, n, out):
    return _caller(BY_INPUT)


def _bits_as(kind, of):
    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(kind))

    return kind(of), codegen


@intrinsic
def as_float(typingctx, bits):
    """The number that has these bits."""
    return _bits_as(types.float64, types.int64)


@intrinsic
def as_bits(typingctx, number):
    """The bits of a number."""
    return _bits_as(types.int64, types.float64)
