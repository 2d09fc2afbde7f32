import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.noise.tail import gaussian_absolute_error, gaussian_half_width

SDS = [0.05, 0.2, 0.21, 0.3, 0.5, 1.0, 1.7, 5.0, 50.0]


def law(sd):
    z = np.arange(-int(60 * sd + 40), int(60 * sd + 40) + 1)
    weight = np.exp(-(z**2) / (2 * sd**2))
    return z, weight / weight.sum()


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_parts_that_are_drawn_at_once_keep_their_places(name, monkeypatch):
    monkeypatch.setattr("trafficdp.noise.source.AT_ONCE", 7)
    sums = np.arange(100) * 10**6
    found = getattr(SecureNoise(), name)(sums, np.full(100, 20.0))
    assert np.abs(found - sums).max() < 2000
    assert len(np.unique(found - sums)) > 10


@pytest.mark.parametrize("sd", SDS)
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_the_half_width_holds_its_level_and_is_at_most_one_too_wide(sd, level):
    z, p = law(sd)
    h = int(gaussian_half_width(np.array([sd]), level)[0])
    assert p[np.abs(z) > h].sum() <= 1 - level
    assert h < 2 or p[np.abs(z) > h - 2].sum() > 1 - level


@pytest.mark.parametrize("sd", SDS)
def test_the_absolute_error_is_an_upper_bound(sd):
    z, p = law(sd)
    bound = float(gaussian_absolute_error(np.array([sd]))[0])
    assert (p * np.abs(z)).sum() <= bound * (1 + 1e-12)
    if sd >= 1:
        assert (p * np.abs(z)).sum() == pytest.approx(bound, rel=0.12)


@pytest.mark.parametrize("change", [1, 2, 5])
@pytest.mark.parametrize("sd", [0.7, 3.0])
def test_its_renyi_divergence_is_that_of_concentrated_privacy(change, sd):
    z, p = law(sd)
    shifted = np.exp(-((z - change) ** 2) / (2 * sd**2)) / np.exp(-(z**2) / (2 * sd**2)).sum()
    rho = change**2 / (2 * sd**2)
    keep = (p > 1e-290) & (shifted > 1e-290)
    for order in (1.5, 2.0, 4.0, 8.0):
        log_terms = order * np.log(p[keep]) + (1 - order) * np.log(shifted[keep])
        divergence = np.logaddexp.reduce(log_terms) / (order - 1)
        assert divergence <= order * rho * (1 + 1e-9)


def test_no_scale_no_noise():
    for draw in (SecureNoise().discrete_gaussian, SimulatedNoise(1).discrete_gaussian):
        z = draw(np.array([[0.0, 9.0], [0.0, 9.0]]))
        assert z.shape == (2, 2)
        assert not z[:, 0].any()
    assert gaussian_half_width(np.zeros(2), 0.95).tolist() == [0, 0]


def test_the_same_seed_draws_the_same_noise():
    sd = np.full(20, 7.0)
    assert (
        SimulatedNoise(3).discrete_gaussian(sd).tolist() == SimulatedNoise(3).discrete_gaussian(sd).tolist()
    )


@pytest.mark.parametrize("sd", [-1.0, np.nan, np.inf, 2.0**56])
def test_scales_that_cannot_be_drawn_are_rejected(sd):
    with pytest.raises(UsageError, match="noise scale"):
        SecureNoise().discrete_gaussian(np.array([sd]))
    with pytest.raises(UsageError, match="noise scale"):
        SimulatedNoise(1).discrete_gaussian(np.array([sd]))


@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1e-160, 1e-8])
def test_noise_of_next_to_no_scale_is_none_and_is_drawn_at_once(tiny):
    """The least float above 0 too, whose square is 0: a loop that waits for a draw to be accepted ends."""
    scales = np.array([tiny, 3.0, tiny])
    for source in (SecureNoise(), SimulatedNoise(1)):
        for draw in (source.discrete_laplace, source.discrete_gaussian):
            assert draw(scales)[[0, 2]].tolist() == [0, 0]
        assert source.block(np.array([3, 4]), np.array([0, 0]), scales[:1]).tolist() == [0, 0]
        assert source.choose(np.array([1, 0]), np.array([1, 1]), np.array([0, 2]), scales[:1]).tolist() == [
            [1]
        ]


@pytest.mark.parametrize("scale", [-1.0, np.inf, np.nan, 2.0**55 * (1 + 2.0**-52)])
def test_simulations_and_rehearsals_refuse_what_a_release_refuses(scale):
    for source in (SecureNoise(), SimulatedNoise(1)):
        for draw in (source.discrete_laplace, source.discrete_gaussian):
            assert abs(int(draw(np.array([3.0]))[0])) < 1_000
            with pytest.raises(UsageError, match="out of range"):
                draw(np.array([1.0, scale]))


def test_opendp_is_given_every_standard_deviation_to_the_last_bit(monkeypatch):
    """Rounded down to whole numbers, large ones would be drawn with a law that no few draws tell apart."""
    import opendp.measurements

    made, given = opendp.measurements.make_gaussian, []

    def heard(*space, scale):
        given.append(scale)
        return made(*space, scale=scale)

    monkeypatch.setattr(opendp.measurements, "make_gaussian", heard)
    sd = np.array([1000.75, 0.0, 3.3, 1000.75, 2.0**40 + 0.5, np.nextafter(7.0, 8.0)])
    SecureNoise().gaussian(np.zeros(6, dtype=np.int64), sd)
    assert sorted(given) == sorted({*sd.tolist()} - {0.0})
