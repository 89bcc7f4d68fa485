"""Advice in options: every entry is for a message that there is, and no message leaves Python behind."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pyro_sparse
from pyro_sparse.cli.advice import TABLE, in_options
from pyro_sparse.data.files import read_table
from pyro_sparse.models import SparseDecoder

PACKAGE = Path(pyro_sparse.__file__).parent


def _text(node):
    """A literal as it may be said: a number stands for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "'1'" if part.conversion == ord("r") else "1"
            for part in node.values
        )
    return None


def messages(path: Path) -> list[str]:
    """Texts that stand in a file, docstrings aside."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    within = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        node for node in nodes if isinstance(node, ast.JoinedStr)
    }
    prose = {
        node.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [text for node in nodes if node not in within | prose and (text := _text(node))]


def _of_table(text, tmp_path, **arguments):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises((ValueError, TypeError)) as said:
        read_table(tmp_path / "t.csv", **arguments)
    return str(said.value)


def _latin(tmp_path):
    (tmp_path / "t.csv").write_bytes("größe,b\n1,2\n".encode("cp1252"))
    with pytest.raises(ValueError) as said:
        read_table(tmp_path / "t.csv")
    return str(said.value)


def _useless(tmp_path):
    from pyro_sparse.data.read import as_table

    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 4)), columns=["a", "b", "c d", "e"])
    with pytest.raises(ValueError) as said:
        as_table(frame.assign(b=1.0, **{"c d": 2.0}), likelihood=SparseDecoder(4, 1).likelihood)
    return str(said.value)


# Messages that are put together from several texts, by the pattern that is for them.
PUT_TOGETHER = {
    r"^columns: (?=.* is no column of the file)": lambda p: _of_table("a,b\n1,2\n", p, columns=["z"]),
    r"^(drop|index): (?=.* is no column of the file)": lambda p: _of_table("a,b\n1,2\n", p, drop=["z"]),
    r"^covariates, groups, sample_weight: ": lambda p: _of_table("a,b\n1,2\n", p, beside=["z"]),
    r" text \('\S+' codec can't decode[^)]*\)": _latin,
    r"missing=(\[[^\]]*\])": lambda p: _of_table("a,b\n1,2\n-,3\nx,4\n", p),
    r"drop=\[.*?\], on the command line (?=--drop)": lambda p: _of_table("a,b\n1,2\nx,3\n", p),
    r"\bdrop them: (\[[^\]]*\])(?=$|, or )": _useless,
}


@pytest.mark.parametrize("entry", TABLE, ids=[entry.pattern[:40] for entry in TABLE])
def test_every_entry_is_for_a_message_that_there_is(entry, tmp_path):
    made = PUT_TOGETHER.get(entry.pattern)
    said = messages(PACKAGE / entry.file) if made is None else [made(tmp_path)]
    assert [text for text in said if re.search(entry.pattern, text)], f"{entry.file} says nothing like it"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("X: has 8 row(s), wanted at least 10 to learn from", "TABLE: has 8 row(s), wanted at least 10 to"),
        ('likelihood={"q*": "ordinal", "*": "normal"}, or', '-l "q*=ordinal" -l "*=normal", or'),
        ("path: 't.csv' …: sep=';', decimal=','", 'TABLE: \'t.csv\' …: --sep ";", --decimal ","'),
        ("say what stands for missing: missing=['-', 'no answer']", "--missing - --missing 'no answer'"),
        ("drop them: ['a', 'b,c']", "drop them: --drop 'a,\"b,c\"'"),
        ("drop them: ['a', 'b'], or what holds no", "drop them: --drop a,b, or what holds no"),
        (
            'give the column likelihood="ordinal", or take the numbers of its categories (.cat.codes, '
            "with NaN for -1) if they are",
            'read it as levels (-l "NAME=ordinal" -l "*=normal"), or write the numbers of its categories if',
        ),
        ("required: edge ('x1', 0) is also forbidden", "--required: 'x1' on factor 1 is also forbidden"),
        (
            "more rows, or no more factors than theory gives (n_factors); "
            "fit.number_of_factors() has the figures",
            "more rows, or no more factors than theory gives (--factors)",
        ),
        ("more restarts, or an anchor for it", "more restarts (--restarts), or an anchor (--anchors) for it"),
        ("the first in row 3, counted from 0", "the first in row 4 below the names"),
        ("if that stands for missing, X.replace(-999, float('nan'))", "missing, give --missing -999"),
    ],
)
def test_what_it_comes_to(text, wanted):
    said = in_options(text)
    assert wanted in said
    assert in_options(said) == said  # said twice it is the same


# Where messages come from that a command can print.
REACHED = [
    "_utils/sources.py", "data/columns.py", "data/design.py", "data/files.py", "data/read.py",
    "data/spreadsheets.py", "data/survey_files.py", "data/text_files.py", "data/checks/*.py",
    "graphs/chain_verdict.py", "inference/edges/mcmc/*.py", "inference/edges/__init__.py",
    "inference/arguments.py", "inference/edges/density/scales.py", "inference/fit.py",
    "inference/table/axis_findings.py",
    "inference/table/depth.py", "inference/table/fit_findings.py", "inference/table/job.py",
    "inference/table/linear_maximum.py",
    "inference/table/lost_factors.py",
    "inference/table/number_of_factors.py", "inference/table/residual_pairs.py",
    "inference/table/straight_curves.py", "inference/table/table_notes.py", "inference/table/unexplained.py",
    "inference/training/*.py", "likelihoods/*.py", "models/base.py", "models/lavaan.py",
    "models/sparse_decoder.py", "posterior/edge_table.py", "posterior/verdicts.py",
    "posterior/rival_restarts.py", "cli/*.py",
]  # fmt: skip
PYTHON = re.compile(
    r"\bfit\.[a-z]\w*|\bps\.[a-zA-Z]|\bpandas\b|\bX\.\w|\bX\[|\bedge_posterior\b|\bsalient_edges\b|float\('nan'\)|"
    r"\b(?:n_factors|learn_scales|time_budget|max_rows|progress|groups|covariates|exposure|likelihood|size_factors|"
    r"learning_rate|sep|decimal|thousands|encoding|missing|sheet|decoder|edge|method|n_jobs|checkpoint|restarts|"
    r"factor_cov|levels)=|\b(?:learning_rate|n_factors|learn_scales|time_budget|max_rows|size_factors)\b"
)
# What no command can come to: tables in memory or read by rows, likelihoods and models of one's own, objects.
NOT_HERE = re.compile(
    r"missing=1$|data/checks/(?:sequences|tasks)\.py|data/columns\.py: "
    r".*(?:get_dummies|cat\.codes|to_numeric|astype|to_pandas|"
    r"feature_names)|"
    r"is read by rows|read by "
    r"rows|mcmc/.*(?:decoder_prior|calibrate|log_likelihood|components|distribution\(|warm_up|want a "
    r"positive number|tolerance|ends them sooner|"
    r"program|own densit|`priors`|write that density|pass X=|stopped after)|"
    r"likelihoods/(?:censored|base|student|shared|adjusted|outcomes)|likelihoods/.*(?:labels|pairs|lowest|CensoredNormal|Ordinal\(|"
    r"positions|want(?:s|ed) (?:True|a mapping|two positive)|subclass|instance|class |forward|init|levels: )|"
    r"inference/(?:arguments|fit)\.py: .*(?:schedule|unknown setting|Pyro "
    r"program|dtype|checkpoint_every|n_factors_init|fit_restart|"
    r"another fit is running|nothing is written| with "
    r"decoder=)|training/ranks\.py|training/(?:elbo|soap|interrupt)\.py|"
    r"edges/__init__\.py: .*(?:loaded fit|no method|want one of)|"
    r"models/base\.py: .*(?:LKJ|wants n_factors|n_factors <=? n_features$)|models/lavaan\.py: "
    r"from_lavaan|models/sparse_decoder\.py: (?:n_f|edge_odds)|"
    r"posterior/edge_table\.py: .*idata|cli/"
)


def test_no_message_leaves_python_behind():
    left = []
    for pattern in REACHED:
        for path in sorted(PACKAGE.glob(pattern)):
            name = str(path.relative_to(PACKAGE))
            for text in messages(path):
                if " " in text and PYTHON.search(in_options(text)) and not NOT_HERE.search(f"{name}: {text}"):
                    left.append(f"{name}: {in_options(text)}")
    assert not left, "\n".join(left)
