#!/usr/bin/python3
"""kazoo's Lock: `kazoo_peer.py HOSTS` takes the orders that Peer.pm describes,
from standard input.  All threads share one session."""
import statistics
import sys
import threading
import time

from kazoo.client import KazooClient

client = KazooClient(hosts=sys.argv[1], timeout=10)
client.start()
threading.stack_size(256 << 10)


def start(count, target):
    threads = [threading.Thread(target=target, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads


def lock(name):
    return client.Lock('/bench/kazoo-%d' % name)


def run(clients, names, seconds):
    """Acquire and release for so long."""
    times = []
    end = time.monotonic() + seconds

    def work(number):
        mine = lock(number % names)
        begun = time.monotonic()
        while begun < end:
            mine.acquire()
            mine.release()
            now = time.monotonic()
            times.append(now - begun)
            begun = now

    for thread in start(clients, work):
        thread.join()
    return '%d %.1f' % (len(times), statistics.median(times) * 1e6)


held = lock(1000)
waiting = []


def fill(waiters):
    """Take a lock and let so many threads queue for it."""
    global waiting

    def wait(_):
        with lock(1000):
            pass

    held.acquire()
    waiting = start(waiters, wait)
    return 'ok'


def drain():
    """Let the lock go; milliseconds until the last of them has had it."""
    begun = time.monotonic()
    held.release()
    for thread in waiting:
        thread.join()
    return '%.1f' % ((time.monotonic() - begun) * 1e3)


for line in sys.stdin:
    order, *arguments = line.split()
    if order == 'run':
        answer = run(int(arguments[0]), int(arguments[1]), float(arguments[2]))
    elif order == 'fill':
        answer = fill(int(arguments[0]))
    else:
        answer = drain()
    print(answer, flush=True)
client.stop()
