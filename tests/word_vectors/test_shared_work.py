"""Work in threads: results in order, no more work held than needed, errors raised."""

import threading

import pytest

from bertsmith.inference.word_vectors.shared_work import in_threads


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 23])
def test_results_come_in_the_order_of_the_work(threads, count):
    assert list(in_threads(lambda number: number * number, range(count), threads)) == [
        number * number for number in range(count)
    ]


def test_one_thread_works_where_it_is_called_and_several_do_not():
    here = threading.get_ident()
    assert set(in_threads(lambda _: threading.get_ident(), range(4), 1)) == {here}
    assert here not in set(in_threads(lambda _: threading.get_ident(), range(4), 2))


def test_work_is_read_as_it_is_needed():
    read = []

    def work():
        for number in range(100):
            read.append(number)
            yield number

    results = in_threads(lambda number: number, work(), 2)
    assert next(results) == 0
    assert len(read) < 10


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_in_a_thread_is_raised(threads):
    def fail(number):
        if number == 3:
            raise ValueError("three")
        return number

    with pytest.raises(ValueError, match="three"):
        list(in_threads(fail, range(10), threads))
