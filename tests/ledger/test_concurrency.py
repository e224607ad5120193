"""Many processes at once: exactly what the cap allows is accepted, by the unit."""

import json
import threading

import pytest
from tests.storm.slices import run as program

from sfumato.core.events import LaplaceEvent
from sfumato.ledger import Budget, BudgetExceeded, Ledger
from sfumato.ledger.verify import examine


def run(*arguments):
    return json.loads(program("-m", "tests.ledger.processes", *arguments))


def test_sixteen_processes_open_a_fresh_ledger_and_spend_it_to_the_last_unit(url):
    accepted = run("race", url, 16)
    assert len(accepted) == 16
    assert sum(accepted) == 200  # 2.0 in hundredths
    ledger = Ledger(url)
    status = ledger.status("census")
    assert (status.reading, status.left) == (2.0, 0.0)
    assert (status.releases, status.open, status.entries) == (200, (), 401)
    assert ledger.verify("census").ok
    ledger.close()


@pytest.mark.slow
def test_readers_and_writers_do_not_lock_each_other_out(url):
    assert run("watch", url, 16, 4) > 16
    ledger = Ledger(url)
    assert ledger.verify("census").ok
    ledger.close()


def test_a_writer_waits_for_a_reader_and_others_for_the_writer(sqlite_url):
    ledger, other = Ledger(sqlite_url), Ledger(sqlite_url)
    ledger.create("census", Budget(1.0))
    with ledger._book.reading("census"):
        writer = threading.Thread(target=lambda: other.spend("census", LaplaceEvent(2.0)))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
    assert ledger.status("census").reading in (0.0, 0.5)
    writer.join()
    assert ledger.status("census").reading == 0.5
    ledger.close()
    other.close()


def test_a_verification_keeps_no_one_waiting(sqlite_url, monkeypatch):
    ledger, other = Ledger(sqlite_url), Ledger(sqlite_url, timeout=1.0)
    ledger.create("census", Budget(1.0))

    def slowly(found, *rest):
        with other.spend("census", LaplaceEvent(2.0)):
            pass
        return examine(found, *rest)

    monkeypatch.setattr("sfumato.ledger.ledger.examine", slowly)
    assert ledger.verify("census").entries == 1
    assert other.status("census").entries == 3
    ledger.close()
    other.close()


def test_one_key_is_charged_once_however_many_ask(url):
    answers = run("same_key", url, 16)
    assert len(answers) == 16
    numbers = {answer for answer in answers if answer != "LedgerError"}
    assert len(numbers) == 1  # all who got an answer got the same one
    ledger = Ledger(url)
    assert ledger.status("census").releases == 1
    ledger.close()


def test_threads_share_a_ledger(ledger):
    ledger.create("census", Budget(0.5))
    accepted = []

    def work():
        while True:
            try:
                with ledger.spend("census", LaplaceEvent(100.0)) as spending:
                    spending.commit(1)
            except BudgetExceeded:
                return
            accepted.append(spending.sequence)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accepted) == len(set(accepted)) == 50
    assert ledger.verify("census").ok


def test_datasets_do_not_wait_for_each_other_in_postgresql(postgresql_url):
    one, two = Ledger(postgresql_url), Ledger(postgresql_url, timeout=0.5)
    one.create("a", Budget(1.0))
    one.create("b", Budget(1.0))
    with one._book.changing("a"), two.spend("b", LaplaceEvent(2.0)) as spending:
        spending.commit(1)
    assert pytest.approx(0.5) == two.status("b").left
    one.close()
    two.close()
