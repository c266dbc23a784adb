"""Spanning trees on the links of a machine that reach the bound of a collective.

The bound and the trees are those of ForestColl (arXiv 2402.06787): a cut through the links bounds
the bandwidth, and edge-disjoint trees from every root reach it (Edmonds 1973).
"""
