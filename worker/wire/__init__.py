"""The contract with a manager, as the worker sees it: bytes in, values out, and back.

A package of its own, without the manager's code: the golden files in tests/gateway/golden are
what the two share.
"""
