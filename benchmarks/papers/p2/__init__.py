"""P² as published (Xie, Norman, Grewe, Vytiniotis, MLSys 2022), for comparison.

``dsl`` is the reduction language and its groups of devices, ``semantics`` is the effect of its
programs on chunks, ``enumerate`` lists the programs that reduce, ``lower`` repeats them over the
devices of a machine, and ``candidates`` costs them. P²'s placements are those of
``collir.synthesis.placement.matrices``.
"""
