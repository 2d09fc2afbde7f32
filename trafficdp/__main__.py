"""`python -m trafficdp`: the same as the command `trafficdp`."""

from __future__ import annotations

from trafficdp.cli.main import main

if __name__ == "__main__":
    main()
