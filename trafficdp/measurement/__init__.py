"""The measurement layer: the only package in which people's values meet noise.

A mechanism states *steps* from public facts. A step is a public **set**, which one vehicle's integers are
brought into, and a **law** of noise. What a vehicle loses follows from set and law alone, so that it is
known, and charged, before a value is read; and the noise that is drawn is the noise that was priced, because
both are read from the same step. So who has read this package knows the guarantee, and needs to read no
mechanism. It takes an hour, read in this order:

1. ``laws``: who has which number, in 64 bits, and what noise costs those who move a sum;
2. ``sets``: what is measured, each with its projection and its price, and steps of it;
3. the verbs of a map, metered before they draw: ``measure``; that of a stream: ``nodes``.
"""
