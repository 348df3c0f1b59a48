"""The store's rules: what every operation checks, does and answers (`docs/store.md`), over a small `Shelf`.

They know no clock: an `Operation` carries the store's time. A store runs one of them inside one transaction.
"""
