"""`--likelihood`: one for the table, or one for columns of each kind."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pyro_sparse as ps
from pyro_sparse.cli.commands import app
from pyro_sparse.cli.recipe import likelihood_of

# rough axes and posteriors of rows: none of these tests is about how good they are
pytestmark = pytest.mark.usefixtures("hurried_module")


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


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of so short a fit
def test_ordered_categories_of_a_file_are_read_as_levels_as_in_python(survey, tmp_path):
    """Before, the command refused a Parquet file whose table `pyro_sparse.fit` took."""
    pytest.importorskip("pyarrow")
    table = pd.read_csv(survey)
    words = ["never", "rarely", "often", "always"]
    for name in ("q0", "q1", "q2"):
        table[name] = pd.Categorical.from_codes(table[name] - 1, words, ordered=True)
    path, out = tmp_path / "survey.parquet", tmp_path / "out"
    table.to_parquet(path)
    options = ["-k", "1", "--restarts", "2", "--steps", "30", "--edges", "score", "--decoder", "linear"]
    kinds = ["-l", "q*=ordinal", "-l", "*=normal"]
    result = CliRunner().invoke(app, ["fit", str(path), *kinds, *options, "--out", str(out)])
    assert result.exit_code in (0, 3), result.output
    fit = ps.load(out / "model.pt")
    assert fit.model.likelihood.labels[:3] == (tuple(words),) * 3
    again = ps.fit(
        ps.models.SparseDecoder(
            n_factors=1, decoder="linear", likelihood={"q*": "ordinal", "*": "normal"}
        ),
        table, restarts=2, steps=30, seed=0, progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(fit.weights, again.weights)
