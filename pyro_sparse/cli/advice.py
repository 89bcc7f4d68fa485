"""The package's advice in words of the command line: `--factors` for `n_factors=`, `--groups` for `groups=`.

Messages of the package name arguments of Python. Whoever runs a command has options: this table says which.
Every entry names the file whose message it is for, and a test sees that there is such a message.
"""

from __future__ import annotations

import ast
import csv
import io
import re
import shlex
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["TABLE", "Entry", "in_options"]


class Entry(NamedTuple):
    """What is written in place of what.

    Attributes
    ----------
    pattern : str
        A regular expression.
    replacement : str or callable
        As for `re.sub`.
    file : str
        Where in the package such a message is written.
    """

    pattern: str
    replacement: str | Callable[[re.Match[str]], str]
    file: str


def _of_mapping(match: re.Match[str]) -> str:
    """``{"q*": "ordinal", "*": "normal"}`` as an option for each."""
    pairs = re.findall(r"""(?:'([^']*)'|"([^"]*)"|(\w+)): ["'](\w+)["']""", match[0])
    return " ".join(f'-l "{one or two or three}={kind}"' for one, two, three, kind in pairs)


def _of_words(match: re.Match[str]) -> str:
    """``missing=['-', 'x']`` as an option for each."""
    words = [one or two for one, two in re.findall(r"""'([^']*)'|"([^"]*)\"""", match[0])]
    return " ".join(f"--missing {shlex.quote(word)}" for word in words) or "--missing"


def _of_columns(match: re.Match[str]) -> str:
    """``drop them: ['a', 'b c']`` as an option, one line of CSV."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(ast.literal_eval(match[1]))
    return f"drop them: --drop {shlex.quote(line.getvalue())}"


def _below_names(match: re.Match[str]) -> str:
    """Rows as people count them."""
    return f"{'in ' * match[0].startswith('in')}row {int(match[1]) + 1} below the names"


def _without_nan(match: re.Match[str]) -> str:
    return match[0].replace("NaN", "empty cells")


def _from_one(match: re.Match[str]) -> str:
    """A required edge by the name of its factor, which counts from 1."""
    return f"--required: {match[1]} on factor {int(match[2]) + 1}"


_RESTARTS = "posterior/rival_restarts.py"
_MCMC = "inference/edges/mcmc"
# In order: what is particular first, then what arguments are called anywhere.
TABLE: tuple[Entry, ...] = (
    # where a message begins: the argument it is about
    Entry(r"^columns: (?=.* is no column of the file)", "--columns: ", "data/files.py"),
    Entry(r"^(drop|index): (?=.* is no column of the file)", r"--\1: ", "data/files.py"),
    Entry(r"^columns, drop: ", "--columns, --drop: ", "data/files.py"),
    Entry(r"^columns: ", "TABLE: ", "data/files.py"),
    Entry(r"^path: ", "TABLE: ", "data/files.py"),
    Entry(r"^X: ", "TABLE: ", "data/columns.py"),
    Entry(r"^covariates, groups, sample_weight: ", "--covariates, --groups, --sample-weight: ",
          "data/files.py"),
    Entry(r"^sample_weight: ", "--sample-weight: ", "data/row_weights.py"),
    Entry(r"^sample_weight_type: ", "--sample-weight-type: ", "data/row_weights.py"),
    Entry(r"\bsample_weight_type='(\w+)'", r"--sample-weight-type \1", "data/row_weights.py"),
    Entry(r"^covariates, groups: ", "--covariates, --groups: ", "data/design.py"),
    Entry(r"^(missing|encoding|sheet|layer): ", r"--\1: ", "data/files.py"),
    Entry(r"^(sep|decimal|thousands): ", r"--\1: ", "data/text_files.py"),
    Entry(r"^index: (?=got .*restarts - 1)", "--restart-index: ", "inference/fit.py"),
    Entry(r"from 0 to restarts - 1 = (\d+)", r"from 0 to \1", "inference/fit.py"),
    Entry(r"^device: ", "--device: ", "inference/arguments.py"),
    Entry(r"^n_jobs: ", "--n-jobs: ", "inference/arguments.py"),
    Entry(r"^likelihood: ", "--likelihood: ", "likelihoods/column_keys.py"),
    Entry(r"^likelihood=(\S+) is not known", r"--likelihood: \1 is not known", "likelihoods/families.py"),
    Entry(
        r", a mapping from columns to these, or an instance of a subclass of "
        r"pyro_sparse\.likelihoods\.Likelihood",
        "",
        "likelihoods/families.py",
    ),
    Entry(
        r"^n_factors: got (\d+) for n_features=(\d+); wanted 1 <= .* \(a factor must be shared by "
        r"features; lower n_factors\)",
        r"--factors: got \1 for \2 columns; a factor must be shared by columns, so give a smaller number",
        "models/base.py",
    ),
    Entry(r"^required: edge \((.*), (\d+)\)", _from_one, "models/sparse_decoder.py"),
    Entry(r"^edge: ", "--edge: ", f"{_MCMC}/sampler.py"),
    Entry(r"^learn_scales: ", "--learn-scales: ", f"{_MCMC}/initialise.py"),
    Entry(r"^text: ", "--model: ", "models/lavaan.py"),
    Entry(r"^parts: ", "PARTS: ", "inference/training/parts.py"),
    Entry(r"^checkpoint: (?=no file at)", "PARTS: ", "inference/training/checkpoint.py"),
    Entry(
        r"^checkpoint: (.*) belongs to another fit (\(.*\)); remove the file or give another path",
        r"--resume: \1 is of a fit with another table or other options \2; repeat those of the fit that was "
        "interrupted, or begin anew with --force",
        "inference/training/checkpoint.py",
    ),
    Entry(r"^edge_posterior took '(\w+)': ", r"edges are by \1: ", "inference/edges/__init__.py"),
    Entry(r"^edge_posterior: time_budget=(\S+) is less", r"--edge-seconds \1 is less", f"{_MCMC}/running.py"),
    Entry(r"^edge_posterior: ", "edges: ", f"{_MCMC}/running.py"),
    # how files are read
    Entry(r" text \('\S+' codec can't decode[^)]*\)", " text, so that some letters cannot be read",
          "data/files.py"),
    Entry(r"drop=\[.*?\], on the command line (?=--drop)", "", "data/files.py"),
    Entry(r"index=\S+, (?=--index)", "", "data/files.py"),
    Entry(r"beside=, (?=--groups)", "", "data/files.py"),
    Entry(r"\bsep='([^']*)'", r'--sep "\1"', "data/text_files.py"),
    Entry(r"\b(decimal|thousands)='([^']*)'", r'--\1 "\2"', "data/text_files.py"),
    Entry(r"\bencoding='([^']*)'", r"--encoding \1", "data/files.py"),
    Entry(r"\b(sep|decimal|thousands)=(?=[ ,]|$)", r"--\1", "data/text_files.py"),
    Entry(r"\bsheet=(?=[ ,])", "--sheet", "data/spreadsheets.py"),
    Entry(r"missing=(\[[^\]]*\])", _of_words, "data/files.py"),
    Entry(r", wanted a list of codes or words, such as \[999, '-9'\]", "", "data/files.py"),
    Entry(r", or in Python pyro_sparse\.open_rows, which reads by rows", "", "_utils/sources.py"),
    Entry(r" \(pandas\.get_dummies\)", "", "data/files.py"),
    # what a table looks like
    Entry(r" \(pandas sorts words by the alphabet; categories=\[…\] gives their order\)", "",
          "data/checks/level_order.py"),
    Entry(r"X\.replace\(([^,]+), float\('nan'\)\)", r"give --missing \1", "data/checks/kinds.py"),
    Entry(r"drop them \(X\.drop_duplicates\(\)\)", "take them out of the table", "data/checks/rows.py"),
    Entry(r"set it to NaN", "leave it empty (or all of its kind: --missing CODE)", "data/checks/rows.py"),
    Entry(r"leave missing cells empty \(NaN\)", "leave missing cells empty", "data/checks/filled.py"),
    Entry(r"set them to NaN", "leave them empty (or all of a kind: --missing CODE)", "data/checks/filled.py"),
    Entry(
        r"a limit is for likelihood=CensoredNormal\(left=…, right=…\)",
        "limits have a likelihood of their own, in Python only",
        "data/checks/filled.py",
    ),
    Entry(r" \(groups=\)", " (--groups)", "data/checks/groups.py"),
    Entry(
        r"; a time series is for LatentTransition",
        "; for time series there is another model, in Python only",
        "data/checks/groups.py",
    ),
    Entry(r" \(use NaN for a missing cell\)", " (a missing cell is empty)", "data/read.py"),
    Entry(r" and standardise=False", "", "data/columns.py"),
    Entry(r"\bdrop them: (\[[^\]]*\])(?=$|, or )", _of_columns, "data/columns.py"),
    Entry(
        r'give the column likelihood="ordinal", or take the numbers of its categories '
        r"\(\.cat\.codes, with NaN for -1\) if",
        'read it as levels (-l "NAME=ordinal" -l "*=normal"), or write the numbers of its categories if',
        "data/columns.py",
    ),
    Entry(r"in row (\d+), counted from 0", _below_names, "data/columns.py"),
    # likelihoods
    Entry(r"(?<=\()row (\d+)(?=\); )", _below_names, "likelihoods/given_cells.py"),
    Entry(r"\{\.\.\., \"\*\": \"(\w+)\"\}", r'-l "*=\1"', "likelihoods/column_keys.py"),
    Entry(r"""(?:likelihood=)?\{(?:['"]?[^{}]*: ["']\w+["'])\}""", _of_mapping, "data/checks/kinds.py"),
    Entry(r'\blikelihood="(\w+)"', r"--likelihood \1", "data/checks/kinds.py"),
    Entry(r"(?:0, 1|levels as whole numbers,|\(counts\)) or NaN", _without_nan, "likelihoods/counts.py"),
    Entry(r"\bor NaN\b", "or empty cells", "likelihoods/ordinal.py"),
    Entry(r"\bwrite NaN where\b", "leave the cell empty where", "likelihoods/given_cells.py"),
    Entry(r"\bwrite NaN\b", "leave the cell empty", "likelihoods/ordinal.py"),
    Entry(r"with pandas\.get_dummies\(dtype=float\)", "(0 and 1, one for each)", "likelihoods/counts.py"),
    Entry(
        r" \(of an AnnData they may be a layer: adata\.to_df\(\"counts\"\)\)",
        " (an .h5ad file may have them in a layer: --layer counts)",
        "likelihoods/counts.py",
    ),
    Entry(r"; give \w+\(size_factors=False\)", "; give --likelihood of a single kind, with --no-depth",
          "likelihoods/columns.py"),
    # what a fit says
    Entry(r"then give likelihood=\w+\(size_factors=False\), or --no-depth", "then give --no-depth",
          "inference/table/depth.py"),
    Entry(
        r"give exposures if you know them, or likelihood=\w+\(size_factors=True\)",
        "name the column with exposures if there is one (--exposure), or give --depth",
        "inference/table/depth.py",
    ),
    Entry(r"try a larger n_factors", "try more factors (--factors)", "inference/table/unexplained.py"),
    Entry(r"^lower learning_rate$", "look for extreme values in the table",
          "inference/table/fit_findings.py"),
    Entry(r"\blower learning_rate(, or)?", lambda m: "" if m[1] else "look for extreme values in the table",
          "inference/training/loop.py"),
    Entry(
        r"; fit\.residual_pairs\(\) lists them",
        "; average each two, or leave one of them out (--drop)",
        "inference/table/residual_pairs.py",
    ),
    Entry(r"; fit\.number_of_factors\(\) has the figures", "", "inference/table/number_of_factors.py"),
    Entry(r"\bthan theory gives \(n_factors\)", "than theory gives (--factors)",
          "inference/table/number_of_factors.py"),
    Entry(r"\bmore restarts\b(?! \(--)", "more restarts (--restarts)", _RESTARTS),
    Entry(r"\ban anchor\b(?! \(--)", "an anchor (--anchors)", _RESTARTS),
    Entry(r"\bfewer factors\b(?! \(--)", "fewer factors (--factors)", "inference/table/axis_findings.py"),
    Entry(
        r"with the same checkpoint= they go on from what was last written",
        "with --resume they go on from what was last written",
        "inference/training/ranks.py",
    ),
    # what the chains of the edges say
    Entry(r"time_budget or max_rows shortens them", "--edge-seconds or --max-rows shortens them",
          f"{_MCMC}/running.py"),
    Entry(r"fewer sweeps or time_budget shorten them", "--edge-seconds shortens them",
          "inference/edges/program/sampler.py"),
    Entry(r"\bmax_rows=(\d+)", r"--max-rows \1", f"{_MCMC}/diagnostics.py"),
    Entry(r"all rows \(max_rows\)", "all rows (--max-rows)", f"{_MCMC}/diagnostics.py"),
    Entry(r"\b(small|smaller) max_rows\b", r"\1 --max-rows", "inference/edges/__init__.py"),
    Entry(r'\bmethod="(mcmc|score)"', r"--edges \1", "inference/edges/__init__.py"),
    Entry(r"ask with fit\.edge_posterior\(learn_scales=True\)", "ask with --learn-scales",
          "inference/edges/density/scales.py"),
    Entry(
        r"Ask for large loadings \(salient_edges\), or say in the prior what an edge is",
        "Ask for large loadings (pyro-sparse summary FOLDER --salient-only), or say what an edge is "
        "(--decoder "
        "linear --edge practical)",
        "inference/edges/density/scales.py",
    ),
    Entry(
        r'edge_posterior\("program"\) asks for them, too, and takes longer',
        "fewer factors (--factors), if you expect no more",
        f"{_MCMC}/diagnostics.py",
    ),
    Entry(r"read both, `sample_stats` says which chain holds which, or give", "give",
          f"{_MCMC}/diagnostics.py"),
    Entry(r"give them more time, or a number of sweeps, for figures that do not depend on the machine",
          "give them more time (--edge-seconds)", f"{_MCMC}/sampler.py"),
    Entry(r"\bby more time or more sweeps", "by more time (--edge-seconds)", f"{_MCMC}/diagnostics.py"),
    Entry(r"\b(run (?:them longer|more))(?=\.?$)", r"\1 (--edge-seconds)", f"{_MCMC}/diagnostics.py"),
    Entry(
        r"read the column `unresolved` of the summary",
        "they have a ? in the table above, and `unresolved` in edges.csv",
        "posterior/verdicts.py",
    ),
    Entry(r" \(decoder='linear'\)", " (--decoder linear)", f"{_MCMC}/sampler.py"),
    Entry(r'\btry decoder="linear"', "try --decoder linear", "inference/table/straight_curves.py"),
    Entry(r"\(edge='prior'(?=[):])", "(--edge prior", f"{_MCMC}/sampler.py"),
    Entry(r"\(edge='practical'(?=[):])", "(--edge practical", f"{_MCMC}/sampler.py"),
    Entry(r"and learn_scales learns it", "and --learn-scales learns it", f"{_MCMC}/sampler.py"),
    # measurement models
    Entry(r" \(factor_cov=False: they are not\)", "", "models/lavaan.py"),
    Entry(r"regressions are covariates of a program \(ps\.Program\)",
          "effects of other columns are --covariates; all else is for Python", "models/lavaan.py"),
    Entry(r"are written as a program \(ps\.Program\)", "can be had in Python only", "models/lavaan.py"),
)  # fmt: skip
_COMPILED = [(re.compile(entry.pattern), entry.replacement) for entry in TABLE]


def in_options(text: str) -> str:
    """A message of the package in words of the command line.

    Parameters
    ----------
    text : str

    Examples
    --------
    >>> in_options("all 5 factors are in use: try a larger n_factors")
    'all 5 factors are in use: try more factors (--factors)'
    """
    for pattern, replacement in _COMPILED:
        text = pattern.sub(replacement, text)
    return text
