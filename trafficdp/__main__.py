"""`python -m trafficdp`: the same as the command `trafficdp`."""

from trafficdp.cli.main import main

if __name__ == "__main__":
    main()
