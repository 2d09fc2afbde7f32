"""The wheel holds the sample city, data/sample, as `trafficdp/sample`; all else stands in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["trafficdp*"]), "trafficdp.sample"],
    package_dir={"trafficdp.sample": "data/sample"},
)
