"""How much our work costs against the bare operation. `python -m benchmarks` measures both side by side in one run.

A theme is a module with functions marked `@benchmark("name")`, each yielding rows; `themes.py` lists the modules.
"""
