#!/usr/bin/env bash
# The first hour of somebody who does not write Python: every step from the command line, timed.
#
#   tests/first_hour.sh [FOLDER_OF_pyro-sparse]
#
# The folder has the commands pyro-sparse and python (such as .venv/bin); by default what the path has.
# It fails at the first step that does not end as it should, or whose output holds a traceback or advice in Python.
set -euo pipefail

bin=${1:-}
if [[ -n $bin ]]; then
    bin=$(cd "$bin" && pwd)
    export PATH="$bin:$PATH"
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} MPLBACKEND=${MPLBACKEND:-Agg} COLUMNS=${COLUMNS:-110}
unset PYRO_SPARSE_TRACEBACK
python=python
command -v python > /dev/null || python=python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
log=$work/output.txt
begun=$SECONDS
quick=(--factors 2 --restarts 2 --steps 60 --decoder linear --edge-seconds 3)

fail() {
    printf '\nFAILED: %s\n' "$1" >&2
    [[ -f $log ]] && sed 's/^/    /' "$log" >&2
    exit 1
}

now() { date +%s.%N; }

report() { # NAME BEGUN: one line with the time of a step
    awk -v name="$1" -v a="$2" -v b="$(now)" 'BEGIN { printf "%7.1f s  %s\n", b - a, name }'
}

check_output() { # NAME: nobody should meet Python here
    if grep -qE 'Traceback|\bps\.[a-z]|\bpandas\.|\bfit\.[a-z_]+\(|\b[a-z]+_[a-z_]+=|learn_scales|time_budget' "$log"; then
        fail "$1: a traceback, or advice in Python"
    fi
}

step() { # NAME WANTED_EXIT_CODES COMMAND...: run it, and see how it ends and what it says
    local name=$1 wanted=$2 code=0 since
    shift 2
    since=$(now)
    "$@" > "$log" 2>&1 < /dev/null || code=$?
    [[ " $wanted " == *" $code "* ]] || fail "$name: exit code $code, wanted $wanted: $*"
    check_output "$name"
    report "$name" "$since"
}

says() { # TEXT: the last step has said it
    tr -s ' \n' ' ' < "$log" | grep -qF -- "$1" || fail "nothing said: $1"
}

has() { # FILE...: what a step should have written
    local file
    for file in "$@"; do
        [[ -s $file ]] || fail "no $file, or an empty one"
    done
}

# Tables as people have them, made here.
"$python" - << 'PYTHON'
import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
x = np.repeat(rng.normal(size=(150, 2)), 3, axis=1) + 0.4 * rng.normal(size=(150, 6))
table = pd.DataFrame(x.round(3), columns=["calm", "sleep", "rest", "speed", "sums", "words"])
table.to_csv("german.csv", sep=";", decimal=",", index=False)
table.rename_axis("person").to_csv("plain.csv")
table.assign(rest=table["rest"].where(table.index % 9 > 0, 999)).to_csv("codes.csv", index=False)
table.assign(school="north").to_csv("text.csv", index=False)
table.to_csv("tabs.csv", sep="\t", index=False, encoding="utf-16")
table.rename(columns={"calm": "Ruhe, größte"}).to_csv("windows.csv", index=False, encoding="cp1252")
large = np.repeat(rng.normal(size=(1000, 5)), 8, axis=1) + 0.7 * rng.normal(size=(1000, 40))
pd.DataFrame(large).add_prefix("item").to_csv("large.csv", index=False)
with pd.ExcelWriter("book.xlsx") as book:
    table.to_excel(book, sheet_name="wave 1", index=False)
    (table + 1).to_excel(book, sheet_name="wave 2", index=False)

import pyreadstat

answers = pd.DataFrame(np.digitize(x, [-1, 0, 1]) + 1.0, columns=table.columns)
answers.iloc[::10, 0] = 9
labels = {"calm": {1.0: "never", 4.0: "always"}}
pyreadstat.write_sav(answers, "survey.sav", variable_value_labels=labels, missing_ranges={"calm": [9]})
PYTHON

step "pyro-sparse --help" 0 pyro-sparse --help
says "Exit codes: 0 done"
step "pyro-sparse fit --help" 0 pyro-sparse fit --help
says "--missing"
step "doctor" 0 pyro-sparse doctor
says "python"
step "demo" 0 pyro-sparse demo --out demo
says "9 of 9 tests depend on the factor of the ability that they were made for"
has demo/report.html demo/edges.csv

step "a CSV with semicolons and decimal commas" "0 3" pyro-sparse fit german.csv "${quick[@]}" --out german
says "read with ; between fields and , for decimals; --sep and --decimal say otherwise"
says "150 rows, 6 features, 0 missing cells"
has german/report.html german/edges.csv german/factors.csv german/idata.nc german/model.pt
step "a sheet of a workbook" "0 3" pyro-sparse fit book.xlsx --sheet "wave 2" "${quick[@]}" --out book
has book/report.html
step "a file of SPSS" "0 3" pyro-sparse fit survey.sav "${quick[@]}" --out survey
says "15 missing cells"
has survey/report.html
step "codes for missing cells" "0 3" pyro-sparse fit codes.csv --missing 999 "${quick[@]}" --edges score --out codes
says "17 missing cells"
step "text of Windows in UTF-16" "0 3" pyro-sparse fit tabs.csv "${quick[@]}" --edges score --out tabs
says "tabs between fields"

step "a file that is not there" 2 pyro-sparse fit absent.csv --out wrong
says "there is no file 'absent.csv'"
step "a column of text" 2 pyro-sparse fit text.csv --out wrong
says "--drop school"
step "letters of Windows" 2 pyro-sparse fit windows.csv --out wrong
says "--encoding cp1252"
step "a misspelt column" 2 pyro-sparse fit plain.csv --index persom --out wrong
says "did you mean one of ['person']"
step "a misspelt option" 2 pyro-sparse fit plain.csv --facotrs 3 --out wrong
says "--factors"
step "a misspelt likelihood" 2 pyro-sparse fit plain.csv --likelihood ordnal --out wrong
says "did you mean ordinal"
[[ ! -e wrong ]] || fail "a folder was left by a fit that never began"
step "results are not overwritten" 2 pyro-sparse fit german.csv "${quick[@]}" --out german
says "overwrite them (--force)"
step "unless they may be" "0 3" pyro-sparse fit german.csv "${quick[@]}" --edges score --out german --force
step "the edges again, at another rate" "0" pyro-sparse summary german --fdr 0.2
step "the report again" 0 pyro-sparse report german
has german/report.html
step "what a warning means" 0 pyro-sparse explain "no other restart found factor 2"
says "What to do"

# Ctrl-C in the middle of the training: what there is is kept, and --resume goes on.
since=$(now)
long=(fit large.csv --factors 6 --restarts 8 --steps 100000 --edges score --out long)
# A shell that is no terminal starts what is in the background deaf to SIGINT; Python is told to listen again.
listen='import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execvp("pyro-sparse", ["pyro-sparse", *sys.argv[1:]])'
"$python" -c "$listen" "${long[@]}" > "$log" 2>&1 < /dev/null &
process=$!
for _ in $(seq 1200); do
    [[ -f long/checkpoint.pt ]] && break
    kill -0 "$process" 2> /dev/null || fail "the long fit ended by itself"
    sleep 0.2
done
[[ -f long/checkpoint.pt ]] || fail "no checkpoint after four minutes"
kill -INT "$process"
code=0
wait "$process" || code=$?
[[ $code == 130 ]] || fail "Ctrl-C: exit code $code, wanted 130"
check_output "Ctrl-C"
says "the same command with --resume goes on"
has long/model.pt long/edges.csv long/report.html long/checkpoint.pt
report "Ctrl-C: what there is is kept" "$since"
step "another fit does not begin there" 2 pyro-sparse "${long[@]}"
says "go on with it (--resume)"

since=$(now)
touch marker
"$python" -c "$listen" "${long[@]}" --resume > "$log" 2>&1 < /dev/null &
process=$!
for _ in $(seq 1200); do # until it has gone on, and written that
    [[ long/checkpoint.pt -nt marker ]] && break
    kill -0 "$process" 2> /dev/null || fail "the resumed fit ended by itself"
    sleep 0.2
done
kill -INT "$process"
code=0
wait "$process" || code=$?
[[ $code == 130 ]] || fail "--resume and Ctrl-C: exit code $code, wanted 130"
"$python" - "$log" << 'PYTHON' || fail "--resume began anew"
import re
import sys

assert int(re.search(r"interrupted at step (\d+)", open(sys.argv[1]).read())[1]) > 250
PYTHON
report "--resume goes on" "$since"

# The report in a browser, where there is one: it opens, its script runs, it prints. What else it must do is tested in
# tests/pages/test_browser.py.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [[ -n $browser ]]; then
    page="file://$work/demo/report.html"
    for width in 1300 420; do
        since=$(now)
        "$browser" --headless --no-sandbox --disable-gpu --window-size="$width,900" --dump-dom "$page" > "$log" 2> /dev/null
        grep -q ' of [0-9]* shown' "$log" || fail "the report's table has no filter at $width pixels"
        report "the report in a browser, $width pixels wide" "$since"
    done
    since=$(now)
    "$browser" --headless --no-sandbox --disable-gpu --no-pdf-header-footer --print-to-pdf="$work/report.pdf" "$page" > "$log" 2>&1
    has report.pdf
    report "the report on paper" "$since"
else
    echo "skipped    the report in a browser: there is no chromium or google-chrome here"
fi

printf '%7d s  all\n' $((SECONDS - begun))
