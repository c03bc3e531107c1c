"""A second device and a second reader of uploads, made from the pages and the vectors.

From shared/reports.md, shared/wire.md, shared/registry.md, shared/mechanisms.md and tests/vectors. They import nothing
of dither: all that they know stands on a page, and a page that leaves something out fails here. Simple before fast.
"""
