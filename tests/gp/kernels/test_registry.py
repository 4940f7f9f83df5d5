"""Names and expressions of kernels: what they mean, that they come back as they were, and what is no kernel."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polyfed.errors import ConfigError
from polyfed.gp import kernels
from polyfed.gp.kernels import KERNELS, Kernel, Periodic, kernel_of, linear, matern52, periodic, rbf, registry, text_of
from problems import law

simple = st.sampled_from([*KERNELS.values(), Periodic(2.0), Periodic(1e-7)])
every = st.recursive(
    simple,
    lambda inner: st.tuples(inner, inner, st.booleans()).map(lambda t: t[0] + t[1] if t[2] else t[0] * t[1]),
    max_leaves=6,
)


@given(kernel=every)
@law(100)
def test_what_is_written_is_read_as_it_was(kernel):
    assert kernel_of(text_of(kernel)) == kernel
    assert text_of(text_of(kernel)) == text_of(kernel)
    assert hash(kernel_of(text_of(kernel))) == hash(kernel)


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("rbf", rbf),
        (" rbf+periodic ", rbf + periodic),
        ("rbf + periodic * linear", rbf + periodic * linear),
        ("(rbf + periodic) * linear", (rbf + periodic) * linear),
        ("((rbf))", rbf),
        ("rbf + (linear + matern52)", rbf + linear + matern52),
        ("periodic( period = 2 )", Periodic(2.0)),
        ("periodic(period=1.5e-1)", Periodic(0.15)),
    ],
)
def test_expressions(text, kernel):
    assert kernel_of(text) == kernel


def test_the_two_operators_are_told_apart():
    assert rbf + linear != rbf * linear
    assert rbf + linear != linear + rbf  # parameters are named by their place
    assert str((rbf + linear) * periodic) == "(rbf + linear) * periodic"
    with pytest.raises(TypeError):
        rbf + 1.0  # pyright: ignore[reportOperatorIssue]


LACKS = "write names with + and * between them, as in 'rbf + periodic'"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("rfb", "kernel 'rfb' is unknown; did you mean 'rbf'? known are 'rbf', 'laplace'"),
        ("rbf + perodic", "kernel 'perodic' is unknown; did you mean 'periodic'?"),
        ("", "kernel '' is unknown; known are 'rbf'"),
        (3, "kernel 3 is unknown; known are 'rbf'"),
        (None, "kernel None is unknown; known are"),
        ("rbf +", f"kernel 'rbf +' lacks a kernel at its end; {LACKS}"),
        ("rbf rbf", f"kernel 'rbf rbf' goes on with 'rbf'; {LACKS}"),
        ("* rbf", f"kernel '* rbf' lacks a kernel before '*'; {LACKS}"),
        ("(rbf", "kernel '(rbf' lacks ')'"),
        ("rbf)", "goes on with ')'"),
        ("rbf - linear", "goes on with '-'"),
        ("__import__('os')", 'kernel "__import__(\'os\')" has "\'" in it'),
        ("os:system", "kernel 'os:system' has ':' in it"),
        ("2 * rbf", "lacks a kernel before '2'"),
        ("rbf(period=2)", "kernel 'rbf' has no option 'period'; write its name alone"),
        ("rbf(metric=2)", "kernel 'rbf' has no option 'metric'"),
        ("periodic(perod=2)", "kernel 'periodic' has no option 'perod'; did you mean 'period'?"),
        ("periodic(period=)", "has no number for 'period'"),
        ("periodic(period=-1)", "has no number for 'period'"),
        ("periodic(period=0)", "the period of a kernel is 0.0; give a number above 0"),
        ("periodic(period=1e999)", "the period of a kernel is inf; give a number above 0"),
        ("periodic()", "lacks an option before ')'"),
        ("(" * 150 + "rbf", "has more than 20 parentheses within each other"),
        ("rbf + " * 60 + "rbf", "a kernel of 363 characters; give at most 200"),
    ],
)
def test_what_is_no_kernel_is_rejected_in_a_sentence(given, says):
    with pytest.raises(ConfigError) as caught:
        kernel_of(given)
    assert says in str(caught.value)


@given(text=st.text(alphabet="rbf+*()=,. 0123456789-periodlnaux_'\"", max_size=40))
@law(200)
def test_any_text_is_a_kernel_or_an_error_of_ours(text):
    try:
        kernel = kernel_of(text)
    except ConfigError:
        return
    assert kernel_of(str(kernel)) == kernel


@dataclass(frozen=True)
class Flat(Kernel):
    """The constant: every input is alike."""

    name = "flat"

    def __call__(self, x, x2, phi):
        return x.new_ones(*x.shape[:-1], x2.shape[-2])


def test_a_registered_kernel_is_known_by_its_name(monkeypatch):
    monkeypatch.setattr(registry, "KERNELS", dict(KERNELS))
    with pytest.raises(
        ConfigError, match=r"kernel 'rbf \+ flat' is not known by its name, and could not be stored; give ea"
    ):
        text_of(rbf + Flat())
    kernels.register(Flat())
    kernels.register(Flat())  # again, as where a module is imported twice
    assert kernel_of("rbf + flat") == rbf + Flat()
    assert text_of(rbf + Flat()) == "rbf + flat"


def test_names_are_not_taken_from_others(monkeypatch):
    monkeypatch.setattr(registry, "KERNELS", dict(KERNELS))

    class Other(Flat):
        name = "rbf"

    class Nameless(Flat):
        name = "a + b"

    with pytest.raises(ConfigError, match="there is another kernel 'rbf'; choose another name"):
        kernels.register(Other())
    with pytest.raises(ConfigError, match=r"with name 'a \+ b' is no kernel; give a Kernel whose name is a word"):
        kernels.register(Nameless())


def test_kernels_of_other_packages(monkeypatch):
    class Entry:
        def __init__(self, name, loaded):
            self.name, self.value, self.loaded = name, f"package:{name}", loaded

        def load(self):
            if self.loaded is None:
                raise ImportError("no package")
            return self.loaded

    found = [Entry("flat", Flat()), Entry("gone", None), Entry("wrong", 3)]
    monkeypatch.setattr("polyfed.plugins.entry_points", lambda group: found if group == "polyfed.kernels" else [])
    with pytest.warns(UserWarning, match="cannot be loaded") as warned:
        assert kernel_of("flat * rbf") == Flat() * rbf
    assert sorted(str(w.message) for w in warned) == [
        "kernel 'gone' of 'package:gone' cannot be loaded: no package",
        "kernel 'wrong' of 'package:wrong' cannot be loaded: int is no Kernel",
    ]


def test_the_weights_of_a_sum_add_up_to_one():
    x = torch.zeros(1, 1, dtype=torch.float64)
    k = rbf + linear + matern52  # linear is zero at the origin
    phi = {"0.phi1": torch.ones(1), "2.phi1": torch.ones(1), "ratio": torch.tensor([3.0, 4.0], dtype=torch.float64)}
    assert k(x, x, phi).item() == pytest.approx((1.0 + 4.0) / 8.0)
