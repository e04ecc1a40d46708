"""Certifies a store: the conformance suite that Perdure's own stores pass.

    pip install "perdure[testing]"
    python -m perdure.testing "mystore://localhost/{new}"

A store of your own is a subclass of `perdure.store.base.Store`. The entry point group `perdure.stores` names the
function that opens it by the scheme of its URL: `open(url, clock=..., durability=...)`.
"""
