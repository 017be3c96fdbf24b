#!/usr/bin/python3
"""kazoo's recipes: `peer.py HOSTS [lock|semaphore|queue]` takes the orders that Peer.pm
describes, from standard input.  All threads share one session."""
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


class Queue:
    """To acquire is to put an item, to release is to take the oldest one."""

    def __init__(self, name):
        self.queue = client.LockingQueue('/bench/kazoo-queue-%d' % name)

    def acquire(self):
        self.queue.put(b'x' * 100)

    def release(self):
        self.queue.get()
        self.queue.consume()


def lock(name):
    what = sys.argv[2] if len(sys.argv) > 2 else 'lock'
    if what == 'queue':
        return Queue(name)
    if what == 'semaphore':
        return client.Semaphore('/bench/kazoo-semaphore-%d' % name, max_leases=4)
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
