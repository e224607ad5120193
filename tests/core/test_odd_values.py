"""Values that may be anything: each has the result that it has alone, and nothing is said."""

import logging
import os
import signal
import threading
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.odd_objects import FAILURES, odd_object

from sfumato.core.odd_values import are_all, is_a, read_each, read_one


def text_or_number(value):
    return str.encode(str(value)) if not is_a(value, int) else float(value)


PLAIN = (1, "a", b"b", None, 2.5, 10**400, "\ud800")


@given(st.lists(st.one_of(st.sampled_from(PLAIN), st.sampled_from(FAILURES).map(lambda w: [w]))))
def test_each_value_is_read_as_it_would_be_alone(drawn):
    values = [odd_object(*one) if isinstance(one, list) else one for one in drawn]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_each(text_or_number, values, "missing")
        assert found == [read_one(text_or_number, value, "missing") for value in values]


@pytest.mark.parametrize("what", ["text", "exit", "interrupt", "dead"])
def test_what_is_raised_means_missing(what):
    assert read_each(str, ["a", odd_object(what), 3], None) == ["a", None, "3"]


def test_the_class_is_asked_of_nobody():
    for what in FAILURES:
        value = odd_object(what)
        assert not is_a(value, int, float)
        assert not are_all([value, "a"], str)
        assert are_all([value], type(value))


@pytest.mark.parametrize("what", ["warning", "log"])
def test_nothing_is_said(what, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_one(str, odd_object(what), None) == "odd"
    assert not caplog.records
    logging.getLogger("sfumato.patients").error("said afterwards")
    assert [record.message for record in caplog.records] == ["said afterwards"]


def test_a_sent_interrupt_ends_the_reading():
    class Slow:
        def __str__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
            return "never"

    # A shell lets what runs in its background ignore Ctrl-C.
    outside, before = signal.getsignal(signal.SIGINT), signal.default_int_handler
    signal.signal(signal.SIGINT, before)
    with pytest.raises(KeyboardInterrupt):
        read_each(str, [odd_object("exit"), Slow()], None)
    assert signal.signal(signal.SIGINT, outside) is before
    assert logging.root.manager.disable < logging.CRITICAL


def test_other_threads_read_alike():
    found = []
    values = ["a", odd_object("exit"), odd_object("interrupt")]
    thread = threading.Thread(target=lambda: found.extend(read_each(str, values, None)))
    thread.start()
    thread.join()
    assert found == ["a", None, None]
