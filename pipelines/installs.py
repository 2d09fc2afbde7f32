"""Install the wheel on every Python that is here, with its oldest and newest dependencies; run every command.

    python pipelines/installs.py [--python 3.12] [--write]      # needs uv and a package index

``--write`` renews data/installs: the table, a file of requirements with a hash of every wheel, and a bill of
materials with the licence of every package (CycloneDX), of the newest dependencies.

A command runs in an empty folder that knows nothing of the source tree. For a Python that is not here, or
not yet supported, it says for which dependencies there is no wheel.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSTALLS = ROOT / "build" / "installs"
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
NEXT = "3.14"
"""Tried too: what is missing for it is said."""
KEPT = ROOT / "data" / "installs"
WELL = "every command runs"
LINE = "{:8}{:14}{:>9}{:>6}  {}"
CITY = (
    ("init",),
    ("suggest", "{feed}"),
    ("ingest", "{feed}"),
    ("status",),
    ("budget",),
    ("plan",),
    ("compare",),
    ("release", "--yes", "--force"),
    ("release", "--yes", "--force", "--again"),
    ("releases",),
    ("ledger",),
    ("doctor",),
    ("verify", "r0001"),
    *(("export", "r0001", f"map.{ending}") for ending in ("geojson", "csv", "parquet", "gpkg", "html")),
    ("export", "r0001", "record.yaml", "--to", "registry"),
    ("export", "r0001", "noise.parquet", "--to", "mechanism"),
    ("report", "r0002", "report.html", "--against", "r0001"),
    ("sql", "SELECT count(*) FROM cells"),
    ("sql", "EXPLAIN SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) AVG(speed) FROM records"),
    ("withdraw", "r0001", "--yes"),
    ("forget", "--yes"),
)
"""Commands within a simulated city, in order."""


def main() -> None:
    """Print a table of installs; exit 1 when a command fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", help="a version such as 3.12; all that are supported")
    parser.add_argument("--write", action="store_true", help="renew data/installs")
    options = parser.parse_args()
    asked = options.python or [*supported(), NEXT]
    shutil.rmtree(INSTALLS, ignore_errors=True)
    wheel = build_wheel(INSTALLS)
    rows: list[tuple[object, ...]] = [("Python", "dependencies", "packages", "MB", "outcome")]
    print(LINE.format(*rows[0]))
    for version in asked:
        for name, resolution in RESOLUTIONS.items():
            rows.append((version, name, *installed(version, resolution, wheel)))
            print(LINE.format(*rows[-1]), flush=True)
    if options.write:
        write(rows)
    sys.exit(any(each[-1] != WELL and each[0] in supported() for each in rows))


def write(rows: Sequence[Sequence[object]]) -> None:
    """Renew what is kept of a run over every Python."""
    head, *body = ([str(each) for each in row] for row in rows)
    lines = [head, ["---"] * len(head), *body]
    table = "\n".join(f"| {' | '.join(each)} |" for each in lines)
    KEPT.mkdir(exist_ok=True)
    (KEPT / "table.md").write_text(f"{table}\n", encoding="utf-8")
    uv(
        *("pip", "compile", "--quiet", "--universal", "--python-version", supported()[0], "--upgrade"),
        *("--only-binary", ":all:", "--generate-hashes", "--no-emit-index-url", "--no-header"),
        *("--output-file", str(KEPT / "requirements.txt"), "pyproject.toml"),
    )
    uv(
        *("tool", "run", "--from", "cyclonedx-bom", "cyclonedx-py", "environment", "--output-reproducible"),
        *("--short-PURLs", "--output-file", str(KEPT / "sbom.json")),
        str(INSTALLS / f"{supported()[-1]}-highest"),
    )
    # where this wheel lay on this machine is nobody's concern
    sbom = json.loads((KEPT / "sbom.json").read_text(encoding="utf-8"))
    for component in sbom["components"]:
        if component["name"] == "trafficdp":
            del component["externalReferences"]
    (KEPT / "sbom.json").write_text(json.dumps(sbom, indent=2), encoding="utf-8")


def supported() -> list[str]:
    """Return the versions of Python that the classifiers name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = (each.rsplit(" ", 1)[-1] for each in project["classifiers"] if "Python :: 3." in each)
    return list(found)


def build_wheel(folder: Path) -> Path:
    """Return the wheel of the tracked files."""
    sources = folder / "sources"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, sources / name)
    uv("build", "--wheel", "--out-dir", str(folder), str(sources))
    (wheel,) = folder.glob("*.whl")
    return wheel


def installed(version: str, resolution: str, wheel: Path) -> tuple[int, int, str]:
    """Return how many packages an install has, its size in MB, and what became of it."""
    environment = INSTALLS / f"{version}-{resolution}"
    pins = environment.with_name(f"{environment.name}.txt")
    compiled = uv(
        *("pip", "compile", "--quiet", "--python-version", version, "--resolution", resolution),
        *("--only-binary", ":all:", "--output-file", str(pins), str(ROOT / "pyproject.toml")),
        check=False,
    )
    if compiled.returncode:
        return 0, 0, f"no wheels: {last_line(compiled.stderr)}"
    if uv("python", "find", version, check=False).returncode:
        return 0, 0, "this Python is not here; every dependency has a wheel"
    uv("venv", "--quiet", "--python", version, str(environment))
    target = "--python", str(environment)
    uv("pip", "install", "--quiet", *target, "--only-binary", ":all:", "--requirements", str(pins))
    uv("pip", "install", "--quiet", *target, "--no-deps", str(wheel))
    packages = len(uv("pip", "freeze", *target).stdout.splitlines())
    size = sum(each.stat().st_size for each in environment.rglob("*") if each.is_file()) // 10**6
    with tempfile.TemporaryDirectory() as folder:
        return packages, size, commands(environment / "bin" / "trafficdp", Path(folder))


def commands(program: Path, folder: Path) -> str:
    """Run every command in ``folder``; return WELL, or the first that does not."""
    city = folder / "simulated"
    steps: list[tuple[Path, tuple[str, ...]]] = [(folder, ("--version",)), (folder, ("demo",))]
    steps.append((folder, ("simulate", "--vehicles", "30")))
    steps += [(city, each) for each in CITY]
    steps.append((folder, ("audit", "baseline", "--draws", "2000")))
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRAFFICDP"))}
    for place, command in steps:
        feeds = sorted(each.name for each in city.glob("records-*"))
        words = [word for each in command for word in (feeds if each == "{feed}" else [each])]
        done = subprocess.run(
            [program, "--quiet", *words],
            cwd=place,
            env=own,
            input="a vehicle\n",
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return f"trafficdp {' '.join(words)}: exit {done.returncode}: {last_line(done.stderr)}"
    return WELL


def last_line(text: str) -> str:
    """Return the last line that says something."""
    return next((each.strip() for each in reversed(text.splitlines()) if each.strip()), "")


def uv(*arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run uv."""
    own = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    return subprocess.run(["uv", *arguments], cwd=ROOT, env=own, capture_output=True, text=True, check=check)


if __name__ == "__main__":
    main()
