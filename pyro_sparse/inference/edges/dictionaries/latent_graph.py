r"""How strongly each latent before a layer acts on each latent after it, for any pair of dictionaries.

.. math:: s_{ij} = E\bigl[\,|J_{ij}|\, f_j\,\bigr], \qquad J_{ij} = \frac{\partial a_i}{\partial f_j},

over rows where both latents are active (elsewhere the term is 0): a is the pre-activation of output latent i,
and the input latent j moves along its decoder direction. Only active pairs are computed, and only those that
were ever active together are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array
from torch import Tensor, nn

from ...._utils.checks import check_whole
from .autoencoder import Autoencoder, codes_of, decoder_directions, encoder_rows
from .effects import Active, Pair, active_latents, closed_form, effects_of

__all__ = ["Effect", "LatentGraph", "check_layer", "latent_graph"]

Effect = Literal["slope", "ablation"]
Array = NDArray[np.float64]

_ROWS_LOOKED_AT = 4096  # whether encoder and decoder are straight; rows of rarer latents are learned later


@dataclass(frozen=True, eq=False)
class LatentGraph:
    """Strengths between the latents of two dictionaries, and what is needed to find them in another refit.

    Attributes
    ----------
    strength : scipy.sparse.csr_array (output latent, input latent)
        Mean over rows of the effect where both are active; in units of the output code.
    directions_in, directions_out : ndarray (latent, d)
        Decoder directions.
    rate_in, rate_out : ndarray (latent,)
        Share of rows on which each latent is active.
    names_in, names_out : list of str
    n_rows : int
        That were looked at.
    effect : {"slope", "ablation"}
    """

    strength: csr_array
    directions_in: NDArray[np.float32]
    directions_out: NDArray[np.float32]
    rate_in: Array
    rate_out: Array
    names_in: list[str]
    names_out: list[str]
    n_rows: int
    effect: str

    @property
    def dead_in(self) -> NDArray[np.bool_]:
        """Input latents that no row has."""
        return self.rate_in == 0

    @property
    def dead_out(self) -> NDArray[np.bool_]:
        """Output latents that no row has."""
        return self.rate_out == 0

    def relative(self) -> csr_array:
        """Strengths relative to the greatest of each output latent, in [0, 1]."""
        greatest = self.strength.max(axis=1).toarray().ravel()
        scale = 1 / np.where(greatest > 0, greatest, 1.0)
        relative = self.strength.copy()
        relative.data = relative.data * np.repeat(scale, np.diff(relative.indptr))
        return relative

    def __repr__(self) -> str:
        n_out, n_in = self.strength.shape
        share = self.strength.nnz / max(n_out * n_in, 1)
        return (
            f"LatentGraph: {n_in} input latents ({int(self.dead_in.sum())} dead), {n_out} output latents "
            f"({int(self.dead_out.sum())} dead), {self.n_rows} rows, effect={self.effect!r}; {share:.1%} of "
            "pairs were active together"
        )


def latent_graph(
    sae_in: Autoencoder,
    sae_out: Autoencoder,
    mlp: Callable[[Tensor], Tensor],
    X: ArrayLike | Tensor,
    Y: ArrayLike | Tensor | None = None,
    *,
    effect: Effect = "slope",
    names_in: Sequence[str] | None = None,
    names_out: Sequence[str] | None = None,
    batch_size: int = 256,
) -> LatentGraph:
    r"""Measure the graph between the latents of two dictionaries.

    Parameters
    ----------
    sae_in, sae_out : object
        With ``encode(x)``, codes (row, latent) that are zero where a latent is not active, and ``decode(f)``,
        affine; from SAELens, dictionary_learning or your own. `sae_in` codes what goes into the layer,
        `sae_out` what comes out. They take activations as `X` has them: any scaling is theirs.
    mlp : callable
        The layer between, (row, d_in) to (row, d_out), row by row. For "slope" autograd must reach through
        it; of a ``Sequential(Linear, activation, Linear)`` slopes are taken in closed form.
    X : array_like or Tensor (row, d_in)
        Activations before the layer, read in batches: a memory map will do.
    Y : array_like or Tensor (row, d_out), optional
        Activations after it, as recorded; they decide which output latents are active. Default: ``mlp(X)``.
    effect : {"slope", "ablation"}
        "slope": :math:`|J_{ij}| f_j` at each row. "ablation": the input latent is taken out of the row, its
        direction times its code, and the change of the output latent is watched. Where the layer bends, the
        two differ; ablation costs one evaluation of the layer for each active latent.
    names_in, names_out : sequence of str, optional
        Default: "in 0", "in 1", … and "out 0", …
    batch_size : int
        Rows at a time.

    Returns
    -------
    LatentGraph

    Raises
    ------
    TypeError
        An object lacks `encode` or `decode`, or returns no tensor.
    ValueError
        Shapes do not fit, activations are not finite, a decoder is not affine, rows meet in `mlp`, or slopes
        cannot be taken.

    Notes
    -----
    The pre-activation of an output latent is continued as the straight line that its code follows while it is
    active, so that an ablation is not cut off at the threshold and does not depend on which other latent
    takes the place in a TopK. An encoder that is not straight on its active latents is taken as it is: slopes
    and changes are then those of its codes.

    Examples
    --------
    >>> import torch
    >>> from types import SimpleNamespace
    >>> eye = SimpleNamespace(encode=torch.relu, decode=lambda f: f)  # a dictionary of the axes
    >>> layer = torch.nn.Linear(3, 2, bias=False)
    >>> layer.weight.data = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.0, 2.0]])
    >>> latent_graph(eye, eye, layer, torch.ones(4, 3)).strength.toarray()
    array([[1. , 0.5, 0. ],
           [0. , 0. , 2. ]])
    """
    for name, sae in (("sae_in", sae_in), ("sae_out", sae_out)):
        if not isinstance(sae, Autoencoder):
            raise TypeError(
                f"{name}: a {type(sae).__name__} lacks encode or decode; wanted an object with both"
            )
    if not callable(mlp):
        raise TypeError(f"mlp: got a {type(mlp).__name__}, wanted the layer as a module or a callable")
    if effect not in get_args(Effect):
        raise ValueError(f"effect: got {effect!r}, wanted one of {list(get_args(Effect))}")
    check_whole(1, batch_size=batch_size)
    n_rows = _check_rows(X, Y)
    dtype, device = _where(sae_in, mlp, sae_out)

    def read(source: ArrayLike | Tensor, rows: slice, name: str) -> Tensor:
        rows_read = source[rows]  # type: ignore[index]
        rows_read = rows_read if isinstance(rows_read, Tensor) else torch.from_numpy(np.array(rows_read))
        rows_read = rows_read.detach().to(device=device, dtype=dtype)
        if not torch.isfinite(rows_read).all():
            raise ValueError(
                f"{name}: has values that are not finite in rows {rows.start} to {rows.stop}; wanted "
                "numbers, leave these rows out"
            )
        return rows_read

    with _evaluating(sae_in, sae_out, mlp), torch.no_grad():
        some = slice(0, min(n_rows, _ROWS_LOOKED_AT))
        first = read(X, some, "X")
        check_layer(mlp, first[:8])
        out = mlp(first) if Y is None else read(Y, some, "Y")
        f_in, f_out = codes_of(sae_in, first, "sae_in"), codes_of(sae_out, out, "sae_out")
        pair = Pair(
            sae_out=sae_out,
            mlp=mlp,
            directions=decoder_directions(sae_in, f_in[:64], "sae_in").to(dtype),
            rows=encoder_rows(sae_out, out, f_out),
        )
        directions_out = decoder_directions(sae_out, f_out[:64], "sae_out")
        if pair.directions.shape[1] != first.shape[1]:
            raise ValueError(
                f"sae_in: decodes to {pair.directions.shape[1]} dimensions, and X has {first.shape[1]}; "
                "wanted the dictionary of what goes into the layer"
            )
        known = (f_out != 0).any(0)
        factors = closed_form(pair) if effect == "slope" else None
        shape = f_out.shape[1], f_in.shape[1]
        names = _names(names_out, shape[0], "out"), _names(names_in, shape[1], "in")
        strength = csr_array(shape)
        fires = [np.zeros(n) for n in shape]
        for start in range(0, n_rows, batch_size):
            rows = slice(start, min(start + batch_size, n_rows))
            x = read(X, rows, "X")
            y = None if Y is None else read(Y, rows, "Y")
            codes = codes_of(sae_in, x, "sae_in")
            codes_out = codes_of(sae_out, mlp(x) if y is None else y, "sae_out")
            for count, f in zip(fires, (codes_out, codes), strict=True):
                count += (f != 0).sum(0).cpu().numpy()
            if pair.rows is not None and (new := (codes_out != 0).any(0) & ~known).any():
                learned = encoder_rows(sae_out, mlp(x) if y is None else y, codes_out * new)
                if learned is None:
                    raise ValueError(
                        "sae_out: the slopes of some latents vary between rows and those of others do not; "
                        "wanted one kind of encoder for all"
                    )
                pair.rows[new] = learned[new]
                known |= new
                factors = closed_form(pair) if effect == "slope" else None
            active_in, active_out = active_latents(codes), active_latents(codes_out)
            if active_in.number.shape[1] and active_out.number.shape[1]:
                size = effects_of(pair, x, y, active_in, active_out, effect, factors)
                strength = strength + _added(size, active_in, active_out, shape)
    return LatentGraph(
        strength=csr_array(strength / n_rows),
        directions_in=_plain(pair.directions),
        directions_out=_plain(directions_out),
        rate_in=fires[1] / n_rows,
        rate_out=fires[0] / n_rows,
        names_in=names[1],
        names_out=names[0],
        n_rows=n_rows,
        effect=effect,
    )


def check_layer(mlp: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Raise unless the layer treats rows one by one.

    Parameters
    ----------
    mlp : callable
    x : Tensor (row, d)
    """
    y = mlp(x)
    if not isinstance(y, Tensor) or y.dim() != 2 or len(y) != len(x):
        what = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else f"a {type(y).__name__}"
        raise ValueError(f"mlp: returned {what} for {len(x)} rows, wanted a tensor (row, d_out)")
    alone = torch.cat([mlp(row) for row in x.split(1)])
    if not (y - alone).norm() <= 0.02 * y.norm():
        raise ValueError(
            "mlp: rows meet in it (a row alone comes out differently), as in attention or batch norm; wanted "
            "a map of single rows"
        )


def _added(size: Tensor, active_in: Active, active_out: Active, shape: tuple[int, int]) -> csr_array:
    """Effects (row, output, input) summed over the rows, as a sparse array of all latents."""
    there = (active_out.there.unsqueeze(2) & active_in.there.unsqueeze(1)).cpu().numpy()
    row = np.broadcast_to(active_out.number.unsqueeze(2).cpu().numpy(), there.shape)[there]
    column = np.broadcast_to(active_in.number.unsqueeze(1).cpu().numpy(), there.shape)[there]
    return coo_array((size.double().cpu().numpy()[there], (row, column)), shape=shape).tocsr()


def _check_rows(X: ArrayLike | Tensor, Y: ArrayLike | Tensor | None) -> int:
    """Number of rows, or a complaint about the shapes."""
    sizes = []
    for name, source in (("X", X), ("Y", Y)):
        if source is None:
            continue
        shape = tuple(np.shape(source)) if not isinstance(source, Tensor) else tuple(source.shape)
        if len(shape) != 2 or 0 in shape or not hasattr(source, "__getitem__"):
            raise ValueError(f"{name}: got shape {shape}, wanted an array of activations (row, d)")
        sizes.append(shape[0])
    if len(set(sizes)) > 1:
        raise ValueError(f"Y: has {sizes[1]} rows, and X has {sizes[0]}; wanted the same rows")
    return int(sizes[0])


def _where(*arguments: object) -> tuple[torch.dtype, torch.device]:
    """Number format and device of the first module that has parameters."""
    for argument in arguments:
        if isinstance(argument, nn.Module):
            for parameter in argument.parameters():
                return parameter.dtype, parameter.device
    return torch.get_default_dtype(), torch.device("cpu")


@contextmanager
def _evaluating(*arguments: object) -> Iterator[None]:
    """Modules as they are when they are used, without dropout; afterwards as they were."""
    modules = [
        m
        for argument in arguments
        if isinstance(argument, nn.Module)
        for m in argument.modules()
        if m.training
    ]
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module in modules:
            module.training = True


def _plain(directions: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = directions.detach().float().cpu().numpy()
    return array


def _names(names: Sequence[str] | None, n: int, side: str) -> list[str]:
    if names is None:
        return [f"{side} {i}" for i in range(n)]
    if len(names) != n or len(set(names)) != n:
        raise ValueError(
            f"names_{side}: got {len(names)} names, {len(set(names))} of them different, for {n} latents; "
            "wanted one of its own for each"
        )
    return [str(name) for name in names]
