"""`--likelihood`: one for the table, or one for columns of each kind."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pyro_sparse as ps
from pyro_sparse.cli.commands import app
from pyro_sparse.cli.recipe import likelihood_of


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (None, "normal"),
        (["poisson"], "poisson"),
        (["q*=ordinal", "*=auto"], {"q*": "ordinal", "*": "auto"}),
        (["a=b=normal"], {"a=b": "normal"}),
    ],
)
def test_what_the_option_says(options, wanted):
    assert likelihood_of(options) == wanted


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["q*=ordinal", "normal"], "'normal' names no columns"),
        (["q*=ordinal", "q*=normal"], "'q\\*' is given 2 times"),
    ],
)
def test_what_it_cannot_mean_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        likelihood_of(options)


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    rng = np.random.default_rng(0)
    z = rng.normal(size=120)
    table = pd.DataFrame({f"q{j}": 1 + np.digitize(z + rng.normal(size=120), [-1, 0, 1]) for j in range(3)})
    table["size"] = (z + rng.normal(size=120)).round(3)
    table["ill"] = (z + rng.normal(size=120) > 0).astype(int)
    path = tmp_path_factory.mktemp("survey") / "survey.csv"
    table.to_csv(path, index=False)
    return path


def _fit(path, out, *options):
    words = ["fit", str(path), "-k", "1", "--restarts", "1", "--steps", "5", "--edges", "score", *options]
    return CliRunner().invoke(app, [*words, "--out", str(out)])


@pytest.mark.slow
def test_columns_of_each_kind_are_fitted_by_theirs(survey, tmp_path):
    result = _fit(survey, tmp_path / "fit", "-l", "q*=ordinal", "-l", "*=auto")
    assert result.exit_code in (0, 3), result.output
    kinds = {part.name: at for part, at in ps.load(tmp_path / "fit" / "model.pt").model.likelihood.families()}
    assert kinds == {"ordinal": [0, 1, 2], "normal": [3], "bernoulli": [4]}
    assert '"auto" reads column' in result.output.replace("\n", " ")


def test_a_column_nobody_means_is_a_message_before_the_fit(survey, tmp_path):
    result = _fit(survey, tmp_path / "fit", "-l", "q*=ordinal")
    assert isinstance(result.exception, ValueError)  # which `main` makes a message and exit status 2 of
    assert "no key means column 'size'" in str(result.exception)
    assert not (tmp_path / "fit").exists()
