"""Make data/itms_counts: one bin of 217 users that meets every published figure of the ITMS buses.

The buses' records are not public. Their figures are, in "Mean Estimation with User-Level Privacy on
Multi-Dimensional IoT Datasets", section IV: 217 users, at most 417 and at least 1 sample each, 17,166
samples, median count 46, mean 20.66769 km/h, variance 115.135, speeds projected to [0, 65] km/h, 160
arrays under WrapAround and 164 under BestFit. What is written here is synthetic and meets all of them.

    python data/make_itms_counts.py [OUT_DIR]

writes ``counts.csv.gz`` (columns user, count) and ``values.csv.gz`` (columns user, value_centi; a value of
2067 is 20.67 km/h; a user's rows stand in the order in which the user sent them). The same bytes come out
everywhere: all arithmetic is on integers and scatter comes from SHA-256, so neither a random generator nor
a floating-point library takes part.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

USERS = 217
SAMPLES = 17_166

# The users' counts, largest first, at knots (rank, count); straight lines between them. The knots were
# found by a search over such lines for the published median and numbers of arrays. The plateau at 50 is
# what makes 50 the cap that the argmax rule chooses.
COUNT_KNOTS = (
    (0, 417), (9, 288), (44, 118), (69, 52), (70, 50), (97, 50), (108, 46), (161, 22), (194, 16), (216, 1),
)  # fmt: skip

# The speeds' quantile function in 0.01 km/h at knots (share of the samples in thousandths, speed): one
# sample in fifty stands still, the fastest come close to the bound.
SPEED_KNOTS = (
    (0, 0), (20, 0), (50, 400), (100, 772), (250, 1351), (500, 1994),
    (750, 2679), (900, 3404), (960, 4030), (990, 4950), (998, 5950), (1000, 6500),
)  # fmt: skip

MEAN = 2_066_769  # published mean, in 0.00001 km/h
VARIANCE = 115_135  # published variance, in 0.001 (km/h)^2


def line_through(knots: Sequence[tuple[int, int]], position: int, unit: int = 1) -> int:
    """Return the straight line through the knots at ``position / unit``, rounded half up, in integers."""
    for (left, low), (right, high) in pairwise(knots):
        if position <= right * unit:
            width = (right - left) * unit
            return (2 * (low * (right * unit - position) + high * (position - left * unit)) + width) // (
                2 * width
            )
    raise ValueError(f"position {position}/{unit} lies beyond the last knot {knots[-1]}")


def bell(label: str) -> int:
    """Return an integer scattered like a bell around 0 (standard deviation about 256) from a hash."""
    return sum(hashlib.sha256(label.encode()).digest()[:12]) - 12 * 255 // 2


def counts_descending() -> list[int]:
    """Return the 217 counts, largest first, with the published sum.

    The lines' sum misses the published one by a few samples; the users after the first take one more each.
    """
    counts = [line_through(COUNT_KNOTS, rank) for rank in range(USERS)]
    for rank in range(1, 1 + SAMPLES - sum(counts)):
        counts[rank] += 1
    return counts


def speeds_ascending() -> list[int]:
    """Return the 17,166 speeds in 0.01 km/h, smallest first, with the published mean and variance.

    The quantile function gives them almost. Then single steps of 0.01 km/h, spread evenly over the middle
    of the samples, move the sum to the nearest integer to the published mean; then pairs, one sample above
    and one below the middle moved apart or together by one step, leave the sum alone and move the sum of
    squares until the variance rounds to the published one.
    """
    speeds = [line_through(SPEED_KNOTS, 1000 * (2 * i + 1), 2 * SAMPLES) for i in range(SAMPLES)]

    missing = (2 * SAMPLES * MEAN + 1000) // 2000 - sum(speeds)
    first, last = SAMPLES // 10, SAMPLES * 9 // 10
    for step in range(abs(missing)):
        speeds[first + step * (last - first) // abs(missing)] += 1 if missing > 0 else -1

    def excess() -> int:
        """Return (variance - published) * SAMPLES^2 in (0.01 km/h)^2; half a printed digit is 5 SAMPLES^2."""
        squares = sum(speed * speed for speed in speeds)
        return SAMPLES * squares - sum(speeds) ** 2 - 10 * VARIANCE * SAMPLES**2

    towards = 1 if excess() < 0 else -1
    step = 0
    while abs(excess()) > SAMPLES**2:
        low, high = SAMPLES // 5 + step, SAMPLES * 4 // 5 - step
        speeds[low] -= towards
        speeds[high] += towards
        step += 7
    return sorted(speeds)


def user_counts() -> dict[int, int]:
    """Return each user's count. Users are numbered without regard to their counts (100 i mod 217)."""
    return {rank * 100 % USERS: count for rank, count in enumerate(counts_descending())}


def user_speeds(counts: dict[int, int]) -> list[tuple[int, int]]:
    """Return (user, speed in 0.01 km/h) for every sample, users ascending.

    Each user leans to slow or fast by a hash of its own, each sample by another, three times as strong:
    sorting the samples by the sum of the two and giving the k-th the k-th smallest speed keeps the pooled
    speeds exactly and lets users differ as drivers do: their own means have a standard deviation of 3.7 km/h
    over the samples (an eighth of the variance lies between users).
    """
    samples = [(user, place) for user in sorted(counts) for place in range(counts[user])]
    leaning = {user: bell(f"itms user {user}") for user in counts}
    order = sorted(
        range(len(samples)),
        key=lambda i: (leaning[samples[i][0]] + 3 * bell(f"itms sample {samples[i][0]} {samples[i][1]}"), i),
    )
    speed_of = dict(zip(order, speeds_ascending(), strict=True))
    return [(user, speed_of[i]) for i, (user, _) in enumerate(samples)]


def gzip_bytes(lines: Iterable[str]) -> bytes:
    """Return the lines, each ended by a newline, as gzip without a time or a file name."""
    text = "".join(f"{line}\n" for line in lines).encode()
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    header = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
    return header + deflate.compress(text) + deflate.flush() + struct.pack("<II", zlib.crc32(text), len(text))


def main(out: Path) -> None:
    """Write the two files into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    counts = user_counts()
    speeds = user_speeds(counts)
    (out / "counts.csv.gz").write_bytes(
        gzip_bytes(["user,count", *(f"{user},{counts[user]}" for user in sorted(counts))])
    )
    (out / "values.csv.gz").write_bytes(
        gzip_bytes(["user,value_centi", *(f"{user},{speed}" for user, speed in speeds)])
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "itms_counts")
