"""Does a store keep what Perdure promises? The suite that ours must pass, for yours.

    pip install "perdure[testing]"
    python -m perdure.testing "mystore://localhost/{new}"

A store of your own is a subclass of `perdure.store.base.Store`. The entry point group `perdure.stores` names the
function that opens it by the scheme of its URL: `open(url, clock=..., durability=...)`.
"""
