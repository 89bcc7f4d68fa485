"""Which latents of dictionaries are found again: in how many refits each has a match.

No theorem says that a dictionary's latents are identified. What can be said is whether another training, from
another seed, found the same direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from ..findings.finding import findings_of, sentences
from ..posterior import arviz as _arviz
from .certificate import Certificate

if TYPE_CHECKING:
    from .._utils.types import ArvizData

__all__ = ["dictionary_certificate"]

_ALONE = "two more refits of the pair of dictionaries, from other seeds"


def dictionary_certificate(fit: object, idata: ArvizData, sure: float) -> Certificate:
    """Say of every latent on both sides whether at least two refits have it.

    Parameters
    ----------
    fit : AutoencoderFit or None
        Not asked: dictionaries may be of any trainer.
    idata : InferenceData or DataTree
        From `pyro_sparse.edge_posterior` of graphs.
    sure : float
        Of no use: a direction is shared or not.

    Returns
    -------
    Certificate
        `probability` is the share of refits that have the latent.
    """
    refits = _arviz.get_group(idata, "refits")
    rows: dict[str, dict[str, object]] = {}
    for dim, number in (("factor", "number_in"), ("feature", "number_out")):
        present = refits[number].transpose(dim, "refit").to_numpy() >= 0
        for name, there in zip(refits[dim].to_numpy(), present, strict=True):
            again = int(there.sum()) >= 2
            key = str(name) if str(name) not in rows else f"{name} (output)"
            rows[key] = {
                "verdict": "identified" if again else "unresolved",
                "probability": float(there.mean()),
                "mixed_with": [],
                "would_help": "" if again else _ALONE,
            }
    cosine, n = float(idata.attrs["cosine"]), int(idata.attrs["n_refits"])
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index.name = "latent"
    open_questions = {
        "same data and layer": "refits of another layer have other directions; not checked",
        "refits are independent": "dictionaries that share a start agree more than others; not checked",
    }
    return Certificate(
        theorem=(
            f"no theorem: at least two of {n} refits have the latent (each other's best match, cosine above "
            f"{cosine:g})"
        ),
        table=table,
        all_identified=float((table["verdict"] == "identified").all()),
        assumptions=pd.DataFrame.from_dict(
            {name: {"holds": None, "figure": figure} for name, figure in open_questions.items()},
            orient="index",
        ).rename_axis("assumption"),
        caution=sentences(findings_of(idata=idata)),
    )
