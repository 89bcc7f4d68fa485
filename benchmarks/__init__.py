"""Benchmarks behind one door: ``python -m benchmarks`` lists them, ``python -m benchmarks NAME`` runs one.

A benchmark is one file here, its name the file's. It has a docstring (whose first line is the listing), and

- ``SEEDS``, ``QUICK_SEEDS``: how many seeds a full and a quick run take,
- ``tasks(options)``: the jobs, each a dict with a ``"seed"`` and whatever `run` needs,
- ``run(**task)``: one job in a process of its own, returning a dict of figures,
- ``collect(rows, options)``: the JSON figures, from the rows of task and figures,
- ``table(rows)`` (optional): what to print; default, the rows; and ``arguments(parser)`` (optional).
"""
