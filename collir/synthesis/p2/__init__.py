"""P² as published (Xie, Norman, Grewe, Vytiniotis, MLSys 2022), so that it can be compared with.

``matrices`` lists placements, ``dsl`` is the reduction language and its groups of devices,
``semantics`` says what the language's programs do to chunks, ``enumerate`` lists the programs that
reduce, and ``lower`` repeats them over the devices of a machine.
"""
