"""A study area around Surat, a key, and a way to declare and read small files."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import pytest
from vienna import declaring

from trafficdp.config.file import load_config
from trafficdp.ingest.read import ReadFile, Reading, read_file
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.model import Period, SourceDeclaration, SpeedUnit, StudyArea, UnitPeriod

COLUMNS = {
    "vehicle": "plate",
    "time": "when",
    "latitude": "lat",
    "longitude": "lng",
    "speed": "v",
}
SOURCE = SourceDeclaration(
    name="city",
    format="csv",
    files=("*",),
    units=(UnitPeriod(SpeedUnit.KILOMETRES_PER_HOUR),),
    columns=COLUMNS,
    sentinels=(Decimal("255"),),
)


@dataclass(frozen=True)
class Reader:
    """Writes a file and reads it."""

    folder: Path
    area: StudyArea
    key: VehicleKey
    source: SourceDeclaration

    def write(self, content: str | bytes, name: str = "day.csv") -> Path:
        data = content.encode() if isinstance(content, str) else content
        path = self.folder / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    def rows(self, *rows: str, **changes: object) -> ReadFile:
        """Read rows of ``plate,when,lat,lng,v``."""
        return self.csv("\n".join(["plate,when,lat,lng,v", *rows]) + "\n", **changes)

    def csv(self, content: str | bytes, name: str = "day.csv", **changes: object) -> ReadFile:
        return self.file(self.write(content, name), **changes)

    def file(self, path: Path, *, refuse_by_rows: bool = True, **changes: object) -> ReadFile:
        source = replace(self.source, **changes)  # type: ignore[arg-type]
        return read_file(path, source, self.area, self.key, refuse_by_rows=refuse_by_rows)

    def reading(self, *rows: str, period: Period | None = None) -> Reading:
        """Read rows of ``plate,when,lat,lng,v`` of the days of ``period``, to their end."""
        path = self.write("\n".join(["plate,when,lat,lng,v", *rows]) + "\n")
        reading = Reading(path, self.source, self.area, self.key, period=period)
        assert len(list(reading.parts())) == 1
        return reading


@pytest.fixture(scope="session")
def area() -> StudyArea:
    return StudyArea.from_bbox(72.5, 20.9, 73.2, 21.5)


@pytest.fixture(scope="session")
def key() -> VehicleKey:
    return VehicleKey(bytes(range(32)))


@pytest.fixture
def source() -> SourceDeclaration:
    return SOURCE


@pytest.fixture
def reader(tmp_path: Path, area: StudyArea, key: VehicleKey, source: SourceDeclaration) -> Reader:
    return Reader(tmp_path, area, key, source)


@pytest.fixture(scope="session")
def data() -> Path:
    return Path(__file__).parent / "data"


@pytest.fixture
def stretch() -> Callable[..., list[str]]:
    """Rows of one bus that drives north, one fix every ``step`` seconds, at ``true`` m/s, saying ``said``."""

    def rows(count: int, *, true: float, said: float, step: int = 10, plate: str = "A1") -> list[str]:
        return [
            f"{plate},2020-11-28T06:{i * step // 60:02}:{i * step % 60:02}Z,"
            f"{21 + i * step * true / 111_195.08:.9f},72.8,{said}"
            for i in range(count)
        ]

    return rows


@pytest.fixture
def declared_in(tmp_path: Path) -> Callable[[str], SourceDeclaration]:
    """The one source that tables of a configuration of Surat declare."""

    def load(tables: str) -> SourceDeclaration:
        config = tmp_path / "trafficdp.toml"
        area, day = [72.5, 20.9, 73.2, 21.5], "2020-11-28"
        config.write_text(declaring(tables, "Surat", "Asia/Kolkata", area, day, day))
        (source,) = load_config(config).sources
        return source

    return load
