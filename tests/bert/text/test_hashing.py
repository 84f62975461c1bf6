"""Random numbers as functions of a seed and a position."""

import numpy as np

from bert.text.hashing import Uniform, mix

OFFSET = 0x632BE59BD9B4E019  # added to every value, so that the value 0 under the key 0 is not mapped to 0


def test_mix_gives_the_published_outputs_of_splitmix64() -> None:
    # The first outputs of the reference implementation (Vigna, splitmix64.c) for the seed 0.
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    value = np.array([2**64 - OFFSET], np.uint64)
    assert [int(mix(value, key)[0]) for key in (1, 2, 3)] == published


def test_numbers_depend_on_seed_and_position_only() -> None:
    positions = np.array([5, 2**40, 0, 17])
    together, alone = Uniform(3, positions), Uniform(3, positions[2:3])
    first, second = together(7), together(2)
    np.testing.assert_array_equal(alone(7), first[2:3])
    np.testing.assert_array_equal(alone(2), second[2:3])  # the next numbers of the position, not the same again
    assert not np.isin(second, first).any()
    assert not np.isin(Uniform(4, positions)(7), first).any()


def test_numbers_are_uniform_over_positions_and_over_draws() -> None:
    drawn = Uniform(11, np.arange(4001))(53)
    assert drawn.min() >= 0 and drawn.max() < 1
    for axis in (0, 1):
        count = drawn.shape[axis]
        deviations = (drawn.mean(axis) - 0.5) * np.sqrt(12 * count)  # standard normal if independent and uniform
        assert np.abs(deviations).max() < 5
        assert abs(deviations.std() - 1) < 0.35
