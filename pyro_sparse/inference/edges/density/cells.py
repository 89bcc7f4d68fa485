r"""The data, feature by feature: their log-likelihood with its derivatives, and a last layer summed out.

With :math:`f_j = \beta_j^\top \phi + o`, :math:`\beta_j \sim N(0, \Lambda^{-1})` and
:math:`M = \Lambda + \phi \phi^\top / \sigma^2`, :math:`v = \phi (x_j - o) / \sigma^2` under normal noise,

.. math:: \log p(x_j \mid \phi, o) = \tfrac12 v^\top M^{-1} v - \tfrac12 \log |M|
          - \tfrac1{2\sigma^2} |x_j - o|^2 + \text{const};

under any other likelihood by Laplace's method: Newton steps from some f that is not unlikely, and
the same at the mode. A feature has at most one parameter of its own, its "noise": the likelihood's
`dispersion`. What a likelihood declares ("normal noise", "cell terms") says which of this is in closed form;
of any other its `forward` is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyro
import torch
from torch import Tensor

from ...._utils.declared import keeps
from ....likelihoods import Likelihood
from ....likelihoods._compiled_cells import level_sums
from ....likelihoods.base import PerRow

__all__ = ["Cells", "Summed", "weighted"]

_FARTHEST = 10.0  # that a cell pulls f at the first step
_NEWTON = 3  # steps: log evidences of candidates were then right to some .005 (NOTEBOOK.md)
_FEW_VALUES = 0.5  # of the rows: distinct values of a feature up to which half of the work is saved
_TIGHT = 5e-3  # noise over variance below which single precision costs log evidence tenths and more


def weighted(head: Tensor, phi: Tensor) -> Tensor:
    """Sum of the basis (..., basis, row) by its coefficients (..., basis): (..., row)."""
    return (head.to(phi).unsqueeze(-2) @ phi).squeeze(-2)


class Summed(NamedTuple):
    """A last layer summed out: log evidence up to what w does not move, mean, root of the precision."""

    log_evidence: Tensor
    mean: Tensor
    root: Tensor

    def draw(self, normal: Tensor) -> Tensor:
        """Coefficients (chain, feature, basis) of their Gaussian, from standard normals of that shape."""
        step = torch.linalg.solve_triangular(self.root.mT, normal.to(self.root).unsqueeze(-1), upper=True)
        return self.mean + step.squeeze(-1)


class Distinct(NamedTuple):
    """The numbers that cells are, where these are few: counts.

    Attributes
    ----------
    value : Tensor (chain or 1, feature, number)
        Each once, filled up with some that no cell of the feature is.
    number : Tensor of the same shape, float64
        How many cells of the feature are that.
    """

    value: Tensor
    number: Tensor


class Declares(NamedTuple):
    """What is in closed form."""

    normal_noise: bool
    cell_terms: bool
    logistic_levels: bool


@dataclass(frozen=True, eq=False)
class Cells:
    """The data, feature by feature, and what a last layer makes of them.

    Shapes of f are (..., feature, row), where leading dimensions end in the chain.

    Parameters
    ----------
    x : Tensor (chain or 1, feature, row)
        Missing cells hold a value that the likelihood allows.
    mask : Tensor of the same shape, or None
        1 where a cell was seen.
    per_row : mapping of str to Tensor (chain or 1, 1, row)
        What the likelihood reads of rows beside their cells.
    likelihood : Likelihood
        Its parameters lead with the chain, but for a dispersion, which is given as the noise.
    declares : Declares, optional
        Of the likelihood; default what it declares.
    offset : Tensor (chain, feature, row), optional
        What is known of the predictor beside f. Under normal noise it is taken from x instead.
    distinct : Distinct, optional
        For `log_base`, which is then a sum over numbers and not over cells.
    """

    x: Tensor
    mask: Tensor | None
    per_row: PerRow
    likelihood: Likelihood
    declares: Declares = None  # type: ignore[assignment]  # found once, not for every few features
    offset: Tensor | None = None
    distinct: Distinct | None = None

    def __post_init__(self) -> None:
        if self.declares is None:
            kinds = ("normal noise", "cell terms", "logistic levels")
            declares = Declares(*(keeps(self.likelihood, kind) for kind in kinds))
            object.__setattr__(self, "declares", declares)

    def features(self, indices: slice | Tensor) -> Cells:
        """The cells of some features."""
        observed = None if self.mask is None else self.mask[:, indices]
        likelihood = None if self.normal else self.likelihood.of_features(indices)
        likelihood = self.likelihood if likelihood is None else likelihood
        offset = None if self.offset is None else self.offset[:, indices]
        return replace(
            self, x=self.x[:, indices], mask=observed, likelihood=likelihood, offset=offset, distinct=None
        )

    def rows(self, indices: Tensor) -> Cells:
        """The cells of some rows."""
        observed = None if self.mask is None else self.mask[..., indices]
        per_row = {name: values[..., indices] for name, values in self.per_row.items()}
        offset = None if self.offset is None else self.offset[..., indices]
        return replace(
            self, x=self.x[..., indices], mask=observed, per_row=per_row, offset=offset, distinct=None
        )

    def counted(self) -> Cells:
        """The same cells, the numbers that they are counted, if a dispersion asks and these are few."""
        if not self.overdispersed:
            return self
        x, order = self.x.sort(-1)
        place = torch.zeros_like(order)
        place[..., 1:] = (x[..., 1:] != x[..., :-1]).cumsum(-1)
        n_values = int(place.max()) + 1
        if n_values > _FEW_VALUES * x.shape[-1]:
            return self
        seen = torch.ones_like(x) if self.mask is None else self.mask.expand_as(x).gather(-1, order)
        value = x[..., :1].repeat(1, 1, n_values).scatter(-1, place, x)
        number = torch.zeros_like(value, dtype=torch.float64).scatter_add(-1, place, seen.double())
        return replace(self, distinct=Distinct(value, number))

    def shifted(self, offset: Tensor) -> Cells:
        """The cells given an offset of the predictor, (chain, feature, row)."""
        if not self.normal:
            return replace(self, offset=offset)
        x = self.x - offset
        return replace(self, x=x if self.mask is None else x * self.mask)

    def whole(self, f: Tensor) -> Tensor:
        """The predictor of which f is all but the offset."""
        return f if self.offset is None else f + self.offset

    @property
    def normal(self) -> bool:
        """Whether the noise is normal, so that what is linear in f is summed out exactly."""
        return self.declares.normal_noise

    @property
    def overdispersed(self) -> bool:
        """Whether the noise is a dispersion that is drawn by random walks: not that of normal cells."""
        return self.likelihood.has_dispersion and self.declares.cell_terms and not self.normal

    @property
    def separate(self) -> bool:
        """Whether features can be looked at a few at a time: the likelihood can be restricted to them."""
        return self.normal or self.overdispersed or self.likelihood.of_features(slice(None)) is not None

    def log_prob(self, f: Tensor, noise: Tensor) -> Tensor:
        """log p(cell | f) of every cell, up to what f does not move; 0 where missing."""
        return self._where_seen(self._derivatives(f, noise, 0))[0]

    def slope(self, f: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        """log p of every cell, and its slope in f."""
        return self._where_seen(self._derivatives(f, noise, 1))

    def expanded(self, f: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        """log p of every cell, its slope in f, and minus its second derivative (at least 0)."""
        return self._where_seen(self._derivatives(f, noise, 2))

    def log_probs(self, f: Tensor, noise: Tensor) -> Tensor:
        """`log_prob` summed over a feature's cells, (..., feature), float64."""
        cuts = self.logistic_cuts
        sums = None if cuts is None else level_sums(self.whole(f), self.x, self.mask, cuts)
        return self.log_prob(f, noise).double().sum(-1) if sums is None else sums

    @property
    def logistic_cuts(self) -> Tensor | None:
        """Of a logistic response (chain or 1, feature or 1, cut) whose levels all cells are, or None."""
        return self.likelihood.logistic_cuts() if self.declares.logistic_levels else None

    def log_base(self, noise: Tensor) -> Tensor:
        """What `log_prob` leaves out and the noise moves, summed over a feature's cells: (chain, feature)."""
        if not self.overdispersed:
            return torch.zeros_like(noise, dtype=torch.float64)
        if self.distinct is not None:
            return (self.likelihood.log_base(self.distinct.value, noise) * self.distinct.number).sum(-1)
        log_base = self.likelihood.log_base(self.x, noise)
        return (log_base if self.mask is None else log_base * self.mask).sum(-1)

    def _where_seen(self, derivatives: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (
            derivatives if self.mask is None else tuple(derivative * self.mask for derivative in derivatives)
        )

    def _derivatives(self, f: Tensor, noise: Tensor, order: int) -> tuple[Tensor, ...]:
        """log p and as many of its slope and minus its curvature as asked, in closed form or by autograd."""
        f = self.whole(f)
        if self.declares.cell_terms:
            terms = self.likelihood.cell_terms(f, self.x, noise, self.per_row, order)
            if terms is not None:
                return terms
        return self._by_autograd(f, order)

    def _by_autograd(self, f: Tensor, order: int) -> tuple[Tensor, ...]:
        """As above, of any likelihood.

        Where its logarithm has no bend anywhere in a feature's row, as that of a Laplace distribution, the
        squared slope stands for it: both have the information as their mean.
        """
        per_row = {name: values.mT for name, values in self.per_row.items()}
        at = f.detach().requires_grad_(order > 0)
        # f may be anything where a trajectory diverges: what comes out is then no number, and refused.
        with torch.set_grad_enabled(order > 0), pyro.validation_enabled(False):
            derivative = self.likelihood(at.mT, per_row).log_prob(self.x.mT.expand_as(at.mT)).mT
            derivatives = [derivative.detach()]
            for n in range(order):
                (derivative,) = torch.autograd.grad(derivative.sum(), at, create_graph=n + 1 < order)
                derivatives.append(derivative.detach())
        if self.mask is not None:  # what is missing may be infinite, and infinity times 0 is not 0
            derivatives = [torch.where(self.mask > 0, derivative, 0.0) for derivative in derivatives]
        if order == 2:
            bend, square = (-derivatives[2]).clamp(min=0), derivatives[1].square()
            derivatives[2] = torch.where(bend.any(-1, keepdim=True), bend, square)
        return tuple(derivatives)

    def evidence(self, design: Tensor, noise: Tensor, precision: Tensor) -> Tensor:
        """Log evidence under normal noise of bases that have the cells as their last row.

        One Cholesky factor holds all of it: with the last row of M's bordered matrix v and its corner c, the
        last diagonal entry of the root is :math:`\\sqrt{c - v^\\top M^{-1} v}`.

        Parameters
        ----------
        design : Tensor (..., chain, feature, basis + 1, row)
        noise : Tensor (chain, feature)
        precision : Tensor (basis,)

        Returns
        -------
        Tensor (..., chain, feature), float64
        """
        last = len(precision)

        def bordered(design: Tensor) -> Tensor:
            bordered_matrix = self._gram(design) / noise.double()[..., None, None]
            diagonal = bordered_matrix.diagonal(dim1=-2, dim2=-1)
            diagonal[..., :last] += precision
            diagonal[..., last] = 1.001 * diagonal[..., last] + 1.0  # above v'M^-1 v whatever the rounding
            return bordered_matrix

        whole, root, _ = _root(bordered, design.double() if self._tight(noise) else design)
        corner, root = whole[..., last, last], root.diagonal(dim1=-2, dim2=-1)
        return 0.5 * (corner - root[..., last] ** 2) - root[..., :last].log().sum(-1)

    def _tight(self, noise: Tensor) -> bool:
        """Whether some feature has so little normal noise that single precision is too coarse."""
        return self.x.dtype != torch.float64 and bool((noise < _TIGHT * self.x.square().mean(-1)).any())

    def _gram(self, phi: Tensor) -> Tensor:
        """Products of bases over the cells that were seen, as exact as phi is, in float64."""
        of_seen = phi if self.mask is None else phi * self.mask.unsqueeze(-2).to(phi)
        return (of_seen @ phi.mT).double()

    def sum_out(
        self,
        phi: Tensor,
        offset: Tensor | float,
        noise: Tensor,
        precision: Tensor,
        near: Tensor,
        newton: int = _NEWTON,
    ) -> Summed:
        """Integrate the last layer: exactly under normal noise, else by Laplace's method.

        Parameters
        ----------
        phi : Tensor (..., feature, basis, row)
        offset : Tensor (..., feature, row) or 0
        noise : Tensor (chain, feature)
        precision : Tensor (basis,)
        near : Tensor (..., feature, row)
            Some f that is not unlikely, where Newton's method begins: it need not be one of this basis, and
            what comes out does not depend on it.
        newton : int
            Steps after the first, which finds the coefficients whose f is nearest. Unused under normal noise.
        """
        if self.normal:
            left = self.x - offset if self.mask is None else (self.x - offset) * self.mask
            s = noise.double().unsqueeze(-1)
            phi = phi.double() if self._tight(noise) else phi
            root, phi = _root(lambda phi: self._gram(phi) / s.unsqueeze(-1) + precision.diag(), phi)[1:]
            pull = _rows_by(left, phi)
            half = torch.linalg.solve_triangular(root, (pull / s).unsqueeze(-1), upper=False)
            mean = torch.linalg.solve_triangular(root.mT, half, upper=True).squeeze(-1)
            log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            return Summed(
                0.5 * half.squeeze(-1).square().sum(-1) - log_det + self._of_offset(offset, s), mean, root
            )
        return self._laplace(phi, offset, noise, precision, near, newton)

    def _of_offset(self, offset: Tensor | float, s: Tensor) -> Tensor | float:
        """What an offset alone does to the likelihood under normal noise."""
        if not isinstance(offset, Tensor):
            return 0.0
        left = (self.x - offset) if self.mask is None else (self.x - offset) * self.mask
        return -0.5 * left.double().square().sum(-1) / s.squeeze(-1)

    def _laplace(
        self,
        phi: Tensor,
        offset: Tensor | float,
        noise: Tensor,
        precision: Tensor,
        near: Tensor,
        newton: int,
    ) -> Summed:
        """Newton steps in the coefficients; the last of them is taken by the parabola that it goes by."""
        constant = phi.shape[-2] == 1

        def solved(bend: Tensor, pull: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """Root of the Hessian, and with it the step and half of it."""
            if constant:
                root = (bend.sum(-1).double() + precision).sqrt()[..., None, None]
                half = pull / root.squeeze(-1)
                return root, half / root.squeeze(-1), half

            def hessian(phi: Tensor) -> Tensor:
                return ((phi * bend.to(phi).unsqueeze(-2)) @ phi.mT).double() + precision.diag()

            root = _root(hessian, phi)[1]
            half = torch.linalg.solve_triangular(root, pull.unsqueeze(-1), upper=False)
            step = torch.linalg.solve_triangular(root.mT, half, upper=True)
            return root, step.squeeze(-1), half.squeeze(-1)

        _, slope, bend = self.expanded(near, noise)
        # Where a yes or no is all but certain and wrong, a whole step goes anywhere, and the few that follow
        # would not come back from there.
        slope = torch.minimum(torch.maximum(slope, -_FARTHEST * bend), _FARTHEST * bend)
        _, beta, _ = solved(bend, _rows_by(slope + bend * (near - offset), phi))
        for left in range(newton, 0, -1):
            log_p, slope, bend = self.expanded(weighted(beta, phi) + offset, noise)
            root, step, half = solved(bend, _rows_by(slope, phi) - precision * beta)
            # No cell's f moves by more than 3, so as not to overshoot.
            fraction = 3.0 / weighted(step, phi).abs().amax(-1).double().clamp(min=3.0)
            if left > 1:
                beta = beta + fraction.unsqueeze(-1) * step
        level = log_p.double().sum(-1) - 0.5 * (precision * beta**2).sum(-1)
        level += (fraction - 0.5 * fraction**2) * half.square().sum(-1)
        log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return Summed(level - log_det, beta + fraction.unsqueeze(-1) * step, root)


def _rows_by(of_rows: Tensor, phi: Tensor) -> Tensor:
    """Sum over rows (..., row) times the basis, (..., basis), float64.

    A row from the left: as a column from the right it may take ten times as long.
    """
    return (of_rows.to(phi).unsqueeze(-2) @ phi.mT).squeeze(-2).double()


def _root(matrix: Callable[[Tensor], Tensor], phi: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """matrix(phi), its Cholesky factor and phi, which is float64 where rounding has cost the matrix its sign.

    Large hidden units and little noise do that: the products' errors are then beyond the prior's precision.
    """
    matrix_at_phi = matrix(phi)
    root, failed = torch.linalg.cholesky_ex(matrix_at_phi)
    if not bool(failed.any()):
        return matrix_at_phi, root, phi
    phi = phi.double()
    matrix_at_phi = matrix(phi)
    return matrix_at_phi, torch.linalg.cholesky(matrix_at_phi), phi
