"""The waist: the only room in which values meet noise. A theorem a file; ``measure`` holds the verbs.

A mechanism states *steps* from public facts. A step is a public **set**, which one vehicle's integers are
brought into (``box``, ``moments``, ``ball``, ``ranks``), and a **law** of noise (``laws``). What a vehicle
loses follows from set and law alone, so that it is known, and charged, before a value is read; and the noise
that is drawn is the noise that was priced, because both are read from the same step.
"""
