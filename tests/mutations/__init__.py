"""Would the tests notice? Each mutant breaks one promise on purpose, and a named test must fail on it.

`mutants/` is the list. `edit.py` finds the code that a mutant changes by its function and shape. `broken_copies.py`
builds a copy of the repository, breaks it and runs the named test there. `test_mutations.py` asks for each mutant
whether its test noticed. A mutant that no test notices is a hole in the tests: write the test, then add the mutant.
"""
